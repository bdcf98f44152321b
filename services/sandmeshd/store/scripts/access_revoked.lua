-- The revocations after one. Returns {revision, id, ...}.
local revision = redis.call('GET', key('access_revision')) or '0'
return {revision, unpack(redis.call('ZRANGEBYSCORE', key('access_revoked'), '(' .. text(args.after), '+inf'))}
