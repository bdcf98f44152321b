-- Records of the unused sandboxes of pools, up to a limit. Returns {record, record, ...}.
local answer = {}
for _, spec_key in ipairs(redis.call('HKEYS', key('pools'))) do
  for _, id in ipairs(redis.call('ZRANGE', key('pool', spec_key), 0, -1)) do
    if #answer < args.limit then answer[#answer + 1] = whole(id) end
  end
end
return answer
