-- Reads the secrets of an owner, or of all where it is empty. Returns {record, ...}.
if args.owner ~= '' then return redis.call('HVALS', key('secrets', args.owner)) end
local answer = {}
for _, owner in ipairs(redis.call('SMEMBERS', key('secret_owners'))) do
  for _, record in ipairs(redis.call('HVALS', key('secrets', owner))) do answer[#answer + 1] = record end
end
return answer
