-- Names the data of this store, once: a store that came back empty gets another name.
redis.call('SET', key('generation'), args.proposed, 'NX')
return {redis.call('GET', key('generation'))}
