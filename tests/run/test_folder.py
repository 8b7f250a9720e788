"""Files of a run that are there as a whole, also after the power has failed."""

import os
import stat

from choral.run.folder import write_whole


def test_the_new_bytes_are_on_the_disk_before_the_name_and_the_folder_after_it(tmp_path, monkeypatch):
    order = []
    sync, replace = os.fsync, os.replace

    def noted_sync(number):
        order.append("folder" if stat.S_ISDIR(os.fstat(number).st_mode) else "file")
        sync(number)

    def noted_replace(old, new):
        order.append("name")
        return replace(old, new)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "replace", noted_replace)
    write_whole(tmp_path / "turn.json", b"{}")
    assert order == ["file", "name", "folder"]
    assert (tmp_path / "turn.json").read_bytes() == b"{}"
