"""What rank 0 starts beside its training: ``python -m leashed.cluster.child ROLE FOLDER INDEX``, with
the run's terms in that folder.
"""

from __future__ import annotations

import contextlib
import json
import logging
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

from leashed.cluster import (
    embedding_server,
    led_rows,
    master,
    policy_server,
    reader,
    server,
    sources,
)
from leashed.cluster.children import saved
from leashed.cluster.ending import LINE, logged, status_of
from leashed.cluster.limits import raise_descriptors
from leashed.cluster.member import master_address
from leashed.cluster.messages import Account
from leashed.cluster.once_read import OnceRead
from leashed.cluster.opening import read_key
from leashed.cluster.row_costs import RowTerms
from leashed.cluster.row_files import folder_of
from leashed.cluster.row_index import kept_in
from leashed.cluster.serving import Place
from leashed.cluster.supervisor import OVER, name_of, tie
from leashed.cluster.table_terms import TableTerms
from leashed.training.led_mode import LedMode

__all__: list[str] = []


def _account(resumed: tuple[int, list[list[int]], str] | None) -> Account | None:
    """As the journal has it, so that the two are equal."""
    if resumed is None:
        return None
    used, spans, _ = resumed
    return Account(used, [(first, count) for first, count in spans])


def _row_terms(terms: dict[str, Any]) -> RowTerms | None:
    """Of what embedding servers have."""
    if not terms["tables"] or not terms["embedding_servers"]:
        return None
    return RowTerms.of(TableTerms.of_json(terms["tables"]).read)


def _main(role: str, folder: Path, index: int) -> int:
    terms = json.loads((folder / "terms.json").read_text(encoding="utf-8"))
    key = read_key(terms["key"], given=terms["given"])
    begins = terms["begins"] and Path(terms["begins"])
    if role == "master":
        once = bool(terms["reading"]) and kept_in(folder).once
        standing = master.run(
            master.Terms(
                total=terms["total"],
                batch_size=terms["batch_size"],
                trainers=terms["trainers"],
                sync_ps=terms["servers"],
                embedding_ps=terms["embedding_servers"],
                policy_ps=terms["policy_servers"],
                readers=terms["readers"],
                rows=_row_terms(terms),
                parameters=terms["dimension"],
                fingerprint=terms["fingerprint"],
                begun=_account(terms["resumed"]),
                grace=terms["grace"],
                timeout=terms["timeout"],
                beat=min(0.5, terms["timeout"] / 4.0),
                min_trainers=terms["min_trainers"],
                require_sync=terms["require_sync"],
                cut=terms["cut"],
                checkpoint_every=terms["checkpoint_every"],
                once=once,
                to_end=once,
            ),
            host=terms["host"],
            port=terms["port"],
            key=key,
            folder=folder,
            transport=terms["transport"],
            comes_back=False,
            begun=begins,
        )
        return 0 if standing["state"] == "ended" else OVER
    ports = terms["ports"]
    counts = "servers", "embedding_servers", "policy_servers"  # of those that have ports before it
    before = counts[: ("sync-ps", "embedding-ps", "policy-ps", "reader").index(role)]
    at = index + sum(terms[name] for name in before)
    place = Place(
        master=terms["master"] or master_address(Path(terms["home"])),
        key=key,
        host=terms["host"],
        folder=folder,
        grace=terms["grace"],
        transport=terms["transport"],
        port=ports and ports + at,
        advertise=terms["advertise"],
        job=terms["job"],
        resume=begins,
        cuts=terms["cuts"] and Path(terms["cuts"]),
        restarts=role != "policy-ps",
    )
    if role == "reader":
        told, rows = terms["reading"], kept_in(folder)
        served: reader.Rows | OnceRead
        if rows.once:
            distinct = told["distinct"]
            size, batches = terms["batch_size"], reader.batches_of(terms["trainers"], "auto")
            stream = sources.stream_of(told)
            served = OnceRead(rows, stream, size, folder, batches, distinct=distinct)
        else:
            served = reader.Rows(rows, sources.from_json(told), reader.threads())
        with contextlib.closing(served):
            reader.attend(served, index, place)
        return 0
    if role == "embedding-ps":
        embedding_server.serve(
            TableTerms.of_json(terms["tables"]),
            index,
            place,
            patience=terms["patience"],
            told=terms["fingerprint"],
        )
        saved(folder_of(folder, index)).touch()
        return 0
    if role == "policy-ps":
        theta = np.load(folder / "theta.npy", allow_pickle=False)
        tables = terms["tables"] and TableTerms.of_json(terms["tables"])
        order = folder / "order.npy"
        led = LedMode.of_json(
            terms["mode"], theta, np.load(order, allow_pickle=False) if order.exists() else None
        )
        policy_server.serve(led, index, place, {}, tables or None)
        saved(led_rows.folder_of(folder, index)).touch()
        return 0
    server.serve(terms["dimension"], terms["servers"], index, place)
    return 0


if __name__ == "__main__":
    tie()
    raise_descriptors()
    logging.getLogger("leashed").setLevel(logging.INFO)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    handler = logging.StreamHandler()
    handler.setFormatter(LINE)
    logging.basicConfig(handlers=[handler])
    role, folder, index = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    name = name_of(role, index)
    sys.exit(status_of(name, lambda: logged(name, lambda: _main(role, folder, index))))
