-- The usage of projects since ever, as it was counted last. Returns {measure:project, amount, ...}.
return redis.call('HGETALL', key('usage', 'total'))
