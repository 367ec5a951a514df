"""Mapped files are released from memory unless they were written to. Caches allocate a page when it is written."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

import pytest

from app.bundle import load_bundle
from app.runtime.kv_cache import paged_zeros
from app.runtime.mapped_files import has_copies, release_pages
from app.runtime.ort_runner import load_runner
from tests.api.server_process import ROOT
from tests.native_kernels import NEEDS_NATIVE

NUM_PAGES = 64
BUNDLED = ROOT / "bundles" / "en-de"


def memory_kb(part: str, *names: str) -> list[int]:
    """Sum some fields of /proc/self/smaps in kB, over the mappings whose first line contains `part`."""
    sums, is_ours = dict.fromkeys(names, 0), False
    for line in Path("/proc/self/smaps").read_text("utf-8").splitlines():
        name, *values = line.split(maxsplit=2)
        if not name.endswith(":"):
            is_ours = part in line
        elif is_ours and name[:-1] in sums:
            sums[name[:-1]] += int(values[0])
    return list(sums.values())


def mapped(path: Path) -> mmap.mmap:
    """Write a file of NUM_PAGES pages that hold their numbers. Map it privately and read it once."""
    path.write_bytes(b"".join(bytes([number]) * mmap.PAGESIZE for number in range(NUM_PAGES)))
    with path.open("r+b") as file:
        pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    assert sum(pages[:: mmap.PAGESIZE]) == sum(range(NUM_PAGES))
    return pages


def test_pages_of_the_folder_are_released_and_can_be_read_again(tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours beside").mkdir()
    with mapped(tmp_path / "ours" / "a") as pages, mapped(tmp_path / "ours beside" / "b") as others:
        before = memory_kb(f"{tmp_path}/ours beside/", "Rss")
        release_pages(tmp_path / "ours")
        assert memory_kb(f"{tmp_path}/ours/", "Rss") == [0]
        assert memory_kb(f"{tmp_path}/ours beside/", "Rss") == before != [0]
        assert bytes(pages[:: mmap.PAGESIZE]) == bytes(others[:: mmap.PAGESIZE]) == bytes(range(NUM_PAGES))


def test_written_pages_are_kept(tmp_path: Path) -> None:
    with mapped(tmp_path / "a") as pages:
        pages[3 * mmap.PAGESIZE] = 200
        release_pages(tmp_path)
        assert pages[3 * mmap.PAGESIZE] == 200


@pytest.mark.parametrize(
    ("bits", "is_copy"), [((), False), ((63, 61), False), ((62, 61), False), ((63,), True), ((62,), True)]
)
def test_a_copy_is_in_memory_or_swapped_out_and_not_of_the_file(bits: tuple[int, ...], is_copy: bool) -> None:
    """Bit 63: the page is in memory. Bit 62: it is swapped out. Bit 61: it is a page of the file."""
    entry = sum(1 << bit for bit in bits) + 12345  # lower bits: where the page is
    assert has_copies(struct.pack("=3Q", 1 << 63 | 1 << 61, entry, 0)) == is_copy


@NEEDS_NATIVE
def test_a_loaded_model_has_its_weights_in_memory_once() -> None:
    bundle = load_bundle(BUNDLED)
    runner = load_runner(bundle, precision="int8", device="cpu", kernels="native", num_rows=4, num_threads=1)
    assert memory_kb(f"{BUNDLED}/", "Rss") == [0], "the weights' pages must be released and not read again"
    assert memory_kb(f"{BUNDLED}/", "Size") > [1000]
    del runner


def resident_around(address: int) -> int:
    """Resident bytes of the mapping that contains an address."""
    is_here = False
    for line in Path("/proc/self/smaps").read_text("utf-8").splitlines():
        name, *values = line.split(maxsplit=2)
        if not name.endswith(":"):
            start, end = (int(each, 16) for each in name.split("-"))
            is_here = start <= address < end
        elif is_here and name == "Rss:":
            return int(values[0]) * 1024
    raise AssertionError(f"nothing is mapped at {address:x}")


def test_a_cache_allocates_only_written_pages() -> None:
    cache = paged_zeros((4, 8, 1 << 20), "float16")
    address = cache[2].__array_interface__["data"][0]
    before = resident_around(address)
    cache[::2, 3, 7] = 1
    assert resident_around(address) - before == 2 * mmap.PAGESIZE
    assert cache.sum() == 2


HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.skipif(
    not HUGE_PAGES.exists() or "[never]" in HUGE_PAGES.read_text("ascii"), reason="there are no huge pages"
)
def test_the_rows_after_the_first_num_sparse_rows_are_in_huge_pages() -> None:
    cache = paged_zeros((2, 8, 4 << 20), "float16", 4)
    for row, pages in ((3, 1), (4, 512)):
        address = cache[1, row, 3 << 20 :].__array_interface__["data"][0]
        before = resident_around(address)
        cache[1, row, 3 << 20] = 1
        assert resident_around(address) - before == pages * mmap.PAGESIZE
    assert cache.sum() == 2


@pytest.mark.skipif(not hasattr(mmap, "MADV_NOHUGEPAGE"), reason="the advice is Linux's")
def test_a_cache_needs_no_huge_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Linux kernel without huge pages refuses the advice, like any advice that it does not know."""
    monkeypatch.setattr(mmap, "MADV_NOHUGEPAGE", 12345)
    assert paged_zeros((2, 4, 8), "float32", 2).sum() == 0
