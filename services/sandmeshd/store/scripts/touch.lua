-- Restarts the idle timeouts of sandboxes. Returns {how many have one}.
local count = 0
for _, id in ipairs(args.ids) do
  local found = redis.call('HMGET', record(id), 'state', 'idle_us')
  if (found[1] == 'READY' or found[1] == 'PAUSED') and found[2] ~= '0' then
    touch(id)
    count = count + 1
  end
end
return {count}
