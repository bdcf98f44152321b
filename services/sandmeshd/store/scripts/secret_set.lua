-- Sets a secret of an owner; its value is encrypted. Returns {record}, or {} where the owner has as many as may be.
local secrets = key('secrets', args.owner)
local former = redis.call('HGET', secrets, args.name)
if not former and redis.call('HLEN', secrets) >= args.most then return {} end
local created = former and cjson.decode(former).created_us or text(now)
local record = cjson.encode({name = args.name, user = args.user, hosts = args.hosts, sealed = args.sealed,
  created_us = created, updated_us = text(now)})
redis.call('HSET', secrets, args.name, record)
redis.call('SADD', key('secret_owners'), args.owner)
return {record}
