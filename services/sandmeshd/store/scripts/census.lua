-- Returns {leases in force, requests in the queue, records}.
return {redis.call('ZCARD', key('leases')), redis.call('HLEN', key('queue_wants')), redis.call('ZCARD', key('ids'))}
