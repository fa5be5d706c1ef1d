# One image for every process of Runlane; the command says which: `api`, `lanes`, `worker core`, …
# Built from the locked dependencies, runs as an ordinary user, holds no server of its own.

FROM python:3.12-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PYTHONDONTWRITEBYTECODE=1

RUN python -m venv /build && python -m venv /opt/runlane
WORKDIR /src
COPY deploy/build.lock deploy/requirements.lock ./
RUN /build/bin/pip install --require-hashes --only-binary :all: -r build.lock \
    && /opt/runlane/bin/pip install --compile --require-hashes --only-binary :all: -r requirements.lock

COPY LICENSE README.md pyproject.toml ./
COPY activities activities
COPY api api
COPY lanes lanes
COPY runlane runlane
COPY workflows workflows
RUN /build/bin/pip wheel --no-build-isolation --no-deps --wheel-dir /dist . \
    && /opt/runlane/bin/pip install --compile --no-deps --no-index /dist/*.whl
# Migrations are found beside the packages.
COPY migrations migrations
RUN cp -r migrations "$(/opt/runlane/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"

FROM python:3.12-slim-bookworm
ENV PATH=/opt/runlane/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    RUNLANE_LOG_FORMAT=json \
    RUNLANE_SECRETS_DIR=/run/secrets \
    RUNLANE_STATE_DIR=/var/lib/runlane
RUN useradd --system --uid 10001 --no-create-home --home-dir /var/lib/runlane --shell /usr/sbin/nologin runlane \
    && install --directory --owner runlane --mode 0700 /var/lib/runlane
COPY --from=build /opt/runlane /opt/runlane
USER runlane
WORKDIR /var/lib/runlane
EXPOSE 7243 8300
STOPSIGNAL SIGTERM
ENTRYPOINT ["runlane"]
CMD ["--help"]
