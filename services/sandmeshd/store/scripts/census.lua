-- Returns {leases in force, requests in the queue}.
return {redis.call('ZCARD', key('leases')), redis.call('HLEN', key('queue_wants'))}
