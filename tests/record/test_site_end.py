"""What a site has at the end, as a value: read strictly, and the same after a round trip."""

import msgspec
import pytest

from choral.core.plan import Plan
from choral.deploy.status import site_end
from choral.record import SiteEnd


def test_it_is_the_same_after_a_round_trip_and_unknown_fields_are_refused(ended_study):
    end = site_end(ended_study.homes["lake"])
    written = end.to_dict()
    assert msgspec.convert({**written, "plan": Plan.from_dict(written["plan"])}, SiteEnd, strict=False) == end
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({**written, "paid": "three"}, SiteEnd)
