"""The protections, the patches that remove them, and the tests that must turn red then."""

from __future__ import annotations

from tests.mutants.doors import DOORS
from tests.mutants.images import IMAGES
from tests.mutants.mutant import Mutant
from tests.mutants.screens import SCREENS
from tests.mutants.walls import WALLS

_EGRESS = "services/sandmeshd/drivers/egress"
_EGRESS_SHARES = "tests/unit/drivers/egress/test_shares.py"
_IDENTITY = "services/sandmeshd/auth/service_identity.py"
_TOKENS = "services/sandmeshd/auth/servicer.py"
_SEALER = "services/sandmeshd/auth/sealer.py"
_PORTS = "services/sandmeshd/gateway/ports"
_DOOR = "services/sandmeshd/runtime/http/door.py"
_METRICS = "services/sandmeshd/runtime/http/metrics.py"
_RPC = "services/sandmeshd/runtime/rpc"

_POLICY = "tests/unit/drivers/egress/test_policy.py"
_DOORS = "tests/unit/runtime/test_doors.py"
_URL_TOKENS = "tests/mesh/tenants/test_url_tokens.py"

_GRANTS = (
    Mutant(
        "public hosts have public addresses",
        f"{_EGRESS}/policy.py",
        "[address for address in addresses if not kind_of(address)]",
        "list(addresses)",
        f"{_POLICY}::test_an_address_that_is_not_public_is_refused_whatever_its_name",
    ),
    Mutant(
        "a name never leads to loopback or metadata",
        f"{_EGRESS}/policy.py",
        "[address for address in addresses if is_of_network(address)]",
        "list(addresses)",
        f"{_POLICY}::test_a_name_never_leads_to_loopback_link_local_or_metadata_but_the_address_does",
    ),
    Mutant(
        "a grant's port is the only one",
        f"{_EGRESS}/policy.py",
        "[host for host in covering if host.allows(target.port)]",
        "covering",
        f"{_POLICY}::test_hosts_are_those_listed",
    ),
    Mutant(
        "a cloud's metadata is not public",
        "services/sandmeshd/contracts/public_addresses.py",
        '    "the metadata of a cloud": ("168.63.129.16/32",),\n',
        "",
        f"{_POLICY}::test_an_address_that_is_not_public_has_a_kind",
    ),
    Mutant(
        "the mesh's own services are reserved",
        f"{_EGRESS}/reserved.py",
        "if await self._leads_to(target, addresses, address):",
        "if False:",
        "tests/unit/drivers/egress/test_reserved.py::"
        "test_a_listener_of_the_mesh_is_refused_by_every_address_of_this_machine",
    ),
    Mutant(
        "an operator reserves hosts",
        f"{_EGRESS}/reserved.py",
        "if host.allows(target.port) and (",
        "if False and (",
        "tests/unit/drivers/egress/test_reserved.py::test_what_the_operator_reserves_is_refused_by_name_and_by_address",
    ),
    Mutant(
        "a target has one reading",
        f"{_EGRESS}/targets.py",
        "plain_host(host) if _is_bare(host) else None",
        "plain_host(host)",
        f"{_POLICY}::test_a_target_that_could_be_read_in_two_ways_is_refused",
    ),
)

_PRINCIPALS = (
    Mutant(
        "a signed identity works once",
        _IDENTITY,
        "if number in self._seen:",
        "if False:",
        "tests/unit/runtime/test_identity.py::test_what_was_overheard_does_not_work_a_second_time",
    ),
    Mutant(
        "a signed identity is for one method",
        _IDENTITY,
        "audience=method, leeway",
        'audience=jwt.decode(signed, options={"verify_signature": False}).get("aud"), leeway',
        "tests/unit/runtime/test_identity.py::test_what_is_expired_unbounded_or_for_another_method_is_refused",
    ),
    Mutant(
        "a secret's file is closed to others",
        _IDENTITY,
        "if path.stat().st_mode & 0o077:",
        "if False:",
        "tests/unit/runtime/test_identity.py::test_a_secret_file_that_is_open_short_or_missing_is_refused",
    ),
    Mutant(
        "users manage no tokens",
        _TOKENS,
        'if principal.scope == "user" and not principal.project:',
        "if False:",
        "tests/unit/auth/test_tokens.py::test_a_user_manages_no_tokens",
    ),
    Mutant(
        "a revoked token is refused",
        _TOKENS,
        "        if record.over:",
        "        if False:",
        "tests/unit/auth/test_tokens.py::test_a_revoked_token_says_so_and_stays_revoked",
    ),
    Mutant(
        "a token's proof is checked",
        _TOKENS,
        " or (secret is not None and not secret.fits(record.digest))",
        "",
        "tests/unit/auth/test_tokens.py::test_another_proof_for_a_known_id_is_invalid",
    ),
    Mutant(
        "private networks are an administrator's to give",
        _TOKENS,
        "if token.private_network and token.scope not in (pb.SCOPE_USER, pb.SCOPE_PROJECT_ADMIN):",
        "if False:",
        "tests/unit/auth/test_tokens.py::test_only_a_users_token_is_allowed_private_networks",
    ),
    Mutant(
        "a sealed value is for its owner and hosts",
        _SEALER,
        '    return b"".join(f"{len(part)}:".encode() + part for part in parts)',
        '    return b""',
        "tests/unit/auth/test_sealer.py::test_another_owner_host_or_mesh_reads_nothing",
    ),
    Mutant(
        "equal values are sealed differently",
        _SEALER,
        "nonce = secrets.token_bytes(_NONCE_BYTES)",
        "nonce = bytes(_NONCE_BYTES)",
        "tests/unit/auth/test_sealer.py::test_equal_values_are_sealed_differently",
    ),
    Mutant(
        "a quota bounds creates",
        "services/sandmeshd/store/scripts/library/quotas.lua",
        "if amount == 0 or used + amount > tonumber(limit) then",
        "if false then",
        "tests/unit/allocator/test_quotas.py::"
        "test_200_creates_at_once_by_five_allocators_make_as_many_sandboxes_as_the_quota_allows",
    ),
    Mutant(
        "a quota bounds pauses, and resumes beside it",
        "services/sandmeshd/store/scripts/intend.lua",
        "if reached then return {'quota', whole(args.id), unpack(reached)} end",
        "",
        "tests/unit/allocator/test_quotas.py::test_paused_sandboxes_have_a_quota_of_theirs",
    ),
    Mutant(
        "a quota bounds snapshots",
        "services/sandmeshd/store/scripts/snapshot_keep.lua",
        "if reached then return reached end",
        "",
        "tests/unit/allocator/test_holdings.py::test_snapshots_that_end_at_once_are_never_more_than_the_quota_together",
    ),
    Mutant(
        "a quota bounds exposed ports",
        "services/sandmeshd/store/scripts/port_hold.lua",
        "if reached then return reached end",
        "",
        "tests/unit/allocator/test_holdings.py::test_100_ports_exposed_at_once_are_as_many_as_the_quota_allows",
    ),
    Mutant(
        "a quota bounds calls of all gateways together",
        "services/sandmeshd/store/scripts/calls_share.lua",
        "math.max(0, limit - held)",
        "limit",
        "tests/unit/gateway/test_call_meters.py::"
        "test_200_calls_at_once_at_five_gateways_are_as_many_as_the_quota_allows",
    ),
    Mutant(
        "a gateway keeps to its share of calls",
        "services/sandmeshd/gateway/routes/call_meters.py",
        "if meter.calls >= meter.granted:",
        "if False:",
        "tests/unit/gateway/test_call_meters.py::test_a_call_within_the_share_asks_nobody",
    ),
    Mutant(
        "fields marked as secrets are hidden",
        "services/sandmeshd/runtime/telemetry/redaction.py",
        "if field.GetOptions().Extensions[options_pb2.secret]:",
        "if False:",
        "tests/unit/runtime/test_redaction.py::test_a_marked_field_shows_that_it_was_set_and_not_what_it_is",
    ),
    Mutant(
        "logs are cleaned of secrets",
        "services/sandmeshd/runtime/telemetry/redaction.py",
        "        event[key] = _clean(value)",
        "        event[key] = value",
        "tests/unit/runtime/test_redaction.py::test_a_service_logs_no_secret_whatever_it_is_given",
    ),
)

_LISTENERS = (
    Mutant(
        "metrics are for this machine",
        _METRICS,
        "_is_local(request.remote) and ",
        "",
        f"{_DOORS}::test_metrics_are_not_for_peers_without_an_address_of_this_machine",
    ),
    Mutant(
        "metrics are not for pages of others",
        _METRICS,
        " and _names_this_machine(request.url.host)",
        "",
        f"{_DOORS}::test_metrics_are_not_for_pages_of_others",
    ),
    Mutant(
        "HTTP accepts so many connections",
        _DOOR,
        "if self._by_peer.total() >= self._most or self._by_peer[peer] >= self._most_of(peer):",
        "if False:",
        f"{_DOORS}::test_http_accepts_so_many_connections_and_then_others_again",
    ),
    Mutant(
        "a first head comes in time",
        _DOOR,
        "if not self._request_count:",
        "if False:",
        f"{_DOORS}::test_a_connection_without_a_whole_head_ends",
    ),
    Mutant(
        "gRPC accepts so many connections",
        f"{_RPC}/server.py",
        '        ("grpc.max_allowed_incoming_connections", connections_allowed()),\n',
        "",
        f"{_DOORS}::test_grpc_accepts_so_many_connections_at_tcp_and_the_unix_socket_is_apart",
    ),
    Mutant(
        "a peer has a part of gRPC's connections",
        f"{_RPC}/peer_limit.py",
        "if count > self._most}",
        "if False}",
        f"{_DOORS}::test_one_peer_has_a_quarter_of_a_grpc_address_and_its_oldest_connections_stay",
    ),
    Mutant(
        "gRPC ends silent connections",
        f"{_RPC}/server.py",
        '        ("grpc.server_handshake_timeout_ms", HANDSHAKE_SECONDS * 1000),\n',
        "",
        f"{_DOORS}::test_grpc_ends_connections_that_say_nothing",
    ),
    Mutant(
        "required fields are set",
        f"{_RPC}/validation.py",
        "if rule.required and not _is_set(message, rule.field):",
        "if False:",
        "tests/unit/runtime/test_validation.py::test_a_missing_field_is_named_by_its_path",
    ),
    Mutant(
        "only public methods pass the gateway",
        "services/sandmeshd/gateway/door/forward.py",
        "    if not is_public(method):\n        return _refusing(path)\n",
        "",
        "tests/unit/gateway/test_gateway.py::test_only_public_methods_of_other_services_pass",
    ),
    Mutant(
        "a token is required at TCP",
        "services/sandmeshd/gateway/door/access.py",
        'if self._required and not context.peer().startswith("unix:"):',
        "if False:",
        "tests/unit/gateway/test_gateway.py::test_a_token_is_asked_for_on_tcp_and_health_stays_open",
    ),
    Mutant(
        "wrong tokens are limited by address",
        "services/sandmeshd/gateway/door/access.py",
        "        if wait > 0:",
        "        if False:",
        "tests/unit/gateway/test_failures.py::test_an_address_gets_so_many_attempts_and_then_one_after_a_while",
    ),
    Mutant(
        "a port's URL is signed",
        f"{_PORTS}/tokens.py",
        " or not hmac.compare_digest(self._signature(body), signature)",
        "",
        "tests/unit/gateway/ports/test_tokens.py::test_every_changed_character_makes_it_worthless",
    ),
    Mutant(
        "a port's URL expires",
        f"{_PORTS}/tokens.py",
        "return target if target.expires > time.time() else None",
        "return target",
        "tests/unit/gateway/ports/test_tokens.py::test_another_secret_or_time_makes_it_worthless",
    ),
    Mutant(
        "a redirect of a WebSocket leads nowhere",
        f"{_PORTS}/client.py",
        "    tracing.on_request_redirect.append(_refuse_redirect)\n",
        "",
        "tests/unit/gateway/ports/test_client.py::test_a_redirect_of_a_websocket_leads_to_no_other_port",
    ),
    Mutant(
        "a cookie has no domain",
        f"{_PORTS}/headers.py",
        'for name, text in named if name != "domain"]',
        "for name, text in named]",
        "tests/unit/gateway/ports/test_headers.py::"
        "test_a_cookie_of_a_host_of_its_own_has_no_domain_however_it_is_written",
    ),
    Mutant(
        "a cookie is for its port's path",
        f"{_PORTS}/headers.py",
        "    if place.prefix:\n        paths",
        "    if False:\n        paths",
        "tests/unit/gateway/ports/test_headers.py::test_a_cookie_is_for_its_port_alone",
    ),
    Mutant(
        "no port speaks for its origin",
        f"{_PORTS}/headers.py",
        "for name in _OF_ORIGIN & {",
        "for name in set[str]() & {",
        "tests/unit/gateway/ports/test_headers.py::"
        "test_a_header_that_reaches_beyond_its_path_is_dropped_where_ports_share_an_origin",
    ),
    Mutant(
        "headers of one hop stay there",
        "services/sandmeshd/runtime/http/headers.py",
        "drop = _HOP | named",
        "drop = named",
        "tests/unit/gateway/ports/test_headers.py::test_headers_of_one_hop_stay_there",
    ),
)

_URLS = (
    Mutant(
        "a URL ends with its token",
        f"{_PORTS}/makers.py",
        "        if token_id:\n            await self._tokens.check_id(token_id)\n",
        "",
        f"{_URL_TOKENS}::test_a_url_ends_with_the_token_that_made_it_and_no_other",
    ),
    Mutant(
        "a URL lasts no longer than its token",
        f"{_PORTS}/servicer.py",
        "min(int(time.time() + seconds) + 1, await self._authority.expiry(token_id))",
        "int(time.time() + seconds) + 1",
        f"{_URL_TOKENS}::test_a_url_lasts_no_longer_than_its_token",
    ),
    Mutant(
        "a URL is for its maker's eyes",
        f"{_PORTS}/servicer.py",
        'return not principal.read_only and principal.token_id in ("", token_id)',
        "return True",
        f"{_URL_TOKENS}::test_a_url_is_shown_to_the_token_that_made_it_only",
    ),
    Mutant(
        "readers get no secret field",
        "services/sandmeshd/gateway/door/forward.py",
        "    if not current_principal().read_only:",
        "    if True:",
        f"{_URL_TOKENS}::test_a_reader_gets_no_environment",
    ),
    Mutant(
        "a user has a quarter of the connections out of sandboxes",
        f"{_EGRESS}/proxy.py",
        "self._owners[sandbox_id] = tenant_of(record_labels)",
        "self._owners[sandbox_id] = sandbox_id",
        f"{_EGRESS_SHARES}::test_an_owner_gets_a_quarter_with_whatever_number_of_sandboxes_and_from_pools_too",
    ),
    Mutant(
        "a sandbox leaves connections to others",
        f"{_EGRESS}/proxy.py",
        "if held >= max(1, free // _SHARE):",
        "if False:",
        f"{_EGRESS_SHARES}::test_however_many_sandboxes_take_all_they_can_another_gets_some",
    ),
    Mutant(
        "a value that is cut by reads of a WebSocket is hidden",
        f"{_EGRESS}/secrets/mask.py",
        "        passed = self._mask.feed(data)\n",
        "        passed = self._mask.whole(data)\n",
        "tests/unit/drivers/egress/test_secret_parts.py::"
        "test_a_mask_of_frames_hides_a_value_wherever_it_is_cut_and_holds_no_whole_frame",
    ),
    Mutant(
        "a change of protocol is asked for",
        f"{_PORTS}/devtools.py",
        "    if answer.status < web.HTTPOk.status_code:",
        "    if False:",
        "tests/mesh/network/test_ports.py::test_a_change_of_protocol_that_was_not_asked_for_is_not_passed_on",
    ),
    Mutant(
        "attempts at another's sandbox are in the audit",
        "services/sandmeshd/gateway/routes/routes.py",
        "            if self._on_probe is not None:\n",
        "            if False:\n",
        "tests/mesh/tenants/test_audit.py::test_attempts_at_anothers_sandbox_are_recorded_whatever_rpc_names_it",
    ),
)

MUTANTS = (*WALLS, *DOORS, *IMAGES, *SCREENS, *_GRANTS, *_PRINCIPALS, *_LISTENERS, *_URLS)
