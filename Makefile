# Every target does its own set-up (see ./dev, which needs no make). ARGS passes options on:
#   make test ARGS="-k stack"
ARGS ?=

.PHONY: demo test check bench chaos up down doctor setup lock record-histories record-events

demo test check bench chaos up down doctor setup lock record-histories record-events:
	@./dev $@ $(ARGS)
