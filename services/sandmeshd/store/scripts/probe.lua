-- Writes, so that a store that cannot is detected, and returns {the time of its clock}.
redis.call('SET', key('pulse'), text(now), 'EX', 60)
return {text(now)}
