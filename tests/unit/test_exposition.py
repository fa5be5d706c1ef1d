"""The text that a scraper reads."""

from runlane.exposition import Family, Kind, Sample, render


def test_every_value_has_its_name_its_labels_and_what_it_means() -> None:
    families = [
        Family("lag_events", Kind.GAUGE, "behind", [Sample(3, {"lane": "audit"}), Sample(0.5)]),
        Family("lost_total", Kind.COUNTER, "gone", []),
    ]

    assert render(families) == (
        "# HELP lag_events behind\n# TYPE lag_events gauge\n"
        'lag_events{lane="audit"} 3\nlag_events 0.5\n'
        "# HELP lost_total gone\n# TYPE lost_total counter\n"
    )


def test_value_of_a_label_cannot_end_its_line() -> None:
    family = Family("a", Kind.GAUGE, "b", [Sample(1, {"c": 'x"\\\ny'})])

    assert 'a{c="x\\"\\\\\\ny"} 1' in render([family])


def test_large_counter_keeps_all_its_digits() -> None:
    assert "a 123456789" in render([Family("a", Kind.COUNTER, "b", [Sample(123_456_789)])])
