-- Adds an event of another's making to a sandbox's stream. Answers {1}, or {0} where there is no such sandbox.
if redis.call('EXISTS', record(args.id)) == 0 then return {0} end
event(args.id, args.kind, args.reason)
return {1}
