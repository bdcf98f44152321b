-- The records are rebuilt: requests are served from now on. Returns {1}, or {0} where the store came back empty again.
if redis.call('GET', key('generation')) ~= args.generation then return {0} end
redis.call('SET', key('open'), args.generation)
return {1}
