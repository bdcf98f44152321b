-- The quotas of snapshots of a project and of a caller. Returns {limit, limit}, each empty where there is none.
return {
  redis.call('HGET', key('quota', 'project', args.project), 'snapshot_bytes') or '',
  redis.call('HGET', key('quota', 'caller', args.caller), 'snapshot_bytes') or '',
}
