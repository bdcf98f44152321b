-- Ends a session: its record and its place in its user's list go, unless it holds sandboxes again.
if redis.call('HLEN', key('session', args.session)) > 0 then return {0} end
redis.call('DEL', key('user_session', args.session))
redis.call('ZREM', key('user', args.user_key), args.session)
return {1}
