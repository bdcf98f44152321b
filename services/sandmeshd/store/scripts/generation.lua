-- Names the data of this store, once: a store that came back empty gets another name. Returns {name, whether it is open}.
redis.call('SET', key('generation'), args.proposed, 'NX')
local name = redis.call('GET', key('generation'))
return {name, redis.call('GET', key('open')) == name and 1 or 0}
