-- Appends an event that no change of the record caused. Returns {1}, or {0} where the sandbox does not exist.
if redis.call('EXISTS', record(args.id)) == 0 then return {0} end
event(args.id, args.kind, args.reason)
return {1}
