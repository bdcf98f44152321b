"""Protections of the doors, and of what is read from labels and records."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_DOORS = "services/sandmeshd/facades"
_LABELS = "tests/mesh/doors/test_door_labels.py"
_RESERVED = f"{_LABELS}::test_labels_that_begin_with_a_doors_name_are_refused_from_everybody_else"
_CONSOLE = "tests/mesh/console/test_console_requests.py"

DOORS = (
    Mutant(
        "labels of doors are set by doors only",
        "services/sandmeshd/allocator/claims/claims.py",
        "        check_labels(request.spec.labels, current_principal())\n",
        "",
        _RESERVED,
    ),
    Mutant(
        "a door shows a proof",
        "services/sandmeshd/gateway/door/access.py",
        "if self._proof and hmac.compare_digest(proof.encode(), self._proof):",
        "if self._proof:",
        _RESERVED,
    ),
    Mutant(
        "one owner has a quarter of what all share",
        "services/sandmeshd/tenants/shares.py",
        "self._used[owner] + amount <= self._most_of(owner) and ",
        "",
        "tests/unit/tenants/test_shares.py::test_an_owner_gets_a_quarter_and_leaves_the_rest_to_others",
    ),
    Mutant(
        "replies that are kept are bounded by owner",
        f"{_DOORS}/swerex/replies.py",
        "part = MOST_BYTES if one is kept else MOST_BYTES // PARTS",
        "part = MOST_BYTES",
        "tests/unit/facades/swerex/test_replies.py::test_names_are_free_and_their_replies_are_bounded_together",
    ),
    Mutant(
        "a key that only looks uses no door",
        f"{_DOORS}/keys.py",
        "if using and principal.read_only:",
        "if using and not principal.scope:",
        "tests/mesh/doors/test_door_bounds.py::test_a_key_that_only_looks_uses_no_door",
    ),
    Mutant(
        "the console takes requests from its own pages only",
        f"{_DOORS}/console/guard.py",
        'if foreign or site != "same-origin" or (asks_more and origin is None):',
        'if foreign and site != "same-origin":',
        f"{_CONSOLE}::test_pages_of_others_are_refused_even_at_another_port",
    ),
    Mutant(
        "a link of the console is used once",
        f"{_DOORS}/console/sessions.py",
        "self._links.pop(_hash(code), (None, False, 0.0))",
        "self._links.get(_hash(code), (None, False, 0.0))",
        f"{_CONSOLE}::test_a_link_is_used_once",
    ),
    Mutant(
        "webhooks go to public addresses only",
        f"{_DOORS}/webhooks/endpoint.py",
        "        self._check_literal()\n",
        "",
        "tests/mesh/webhooks/test_webhooks.py::test_inward_addresses_are_refused_as_in_sandboxes",
    ),
    Mutant(
        "a webhook's signature has its time",
        "sdk/sandmesh/mesh/webhooks.py",
        " and abs(time.time() - int(moment)) <= tolerance",
        "",
        "tests/unit/facades/webhooks/test_webhook_parts.py::test_a_request_without_a_time_of_these_minutes_is_refused",
    ),
    Mutant(
        "no sandbox gets a session of the console",
        "services/sandmeshd/gateway/ports/headers.py",
        "    _drop_console(headers)\n",
        "",
        "tests/unit/gateway/ports/test_headers.py::test_a_session_of_the_console_reaches_no_sandbox",
    ),
    Mutant(
        "a record that cannot be read ends no listing",
        "services/sandmeshd/allocator/records/records.py",
        "except (ValueError, KeyError, DecodeError) as error:",
        "except RecursionError as error:",
        "tests/unit/allocator/test_unreadable_records.py::test_a_record_that_cannot_be_read_is_failed_and_keeps_its_id",
    ),
)
