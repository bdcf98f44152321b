-- Adds the egress of sandboxes; `totals` are their bytes since their driver started, by id. Returns {1}.
for id, total in pairs(args.totals) do
  local found = redis.call('HMGET', record(id), 'session', 'egress_bytes', 'project', 'user', 'template')
  if found[1] and found[1] ~= '' then
    local seen = tonumber(found[2] or '0')
    -- Less than before: the driver restarted.
    local more = total >= seen and total - seen or total
    redis.call('HSET', record(id), 'egress_bytes', text(total))
    if more > 0 then add_usage(id, {found[3], found[4], found[5]}, {{'egress_bytes', more}}) end
  end
end
return {1}
