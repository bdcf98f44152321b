-- Usage up to now: of projects since a day, or since ever where `first_day` is 0, and of the sandboxes that were counted last.
-- Returns {{measure:project, amount, ...}, {id, {field, value, ...}, ...}}.
meter_all()
local sums = {}
local function add(name)
  local found = redis.call('HGETALL', name)
  for index = 1, #found, 2 do sums[found[index]] = (sums[found[index]] or 0) + tonumber(found[index + 1]) end
end
if args.first_day == 0 then
  add(key('usage', 'total'))
else
  local last = math.floor(now / DAY_US)
  for day = math.max(args.first_day, last - KEPT_DAYS), last do add(key('usage', 'day', text(day))) end
end
local projects, sandboxes = {}, {}
for name, amount in pairs(sums) do
  projects[#projects + 1] = name
  projects[#projects + 1] = text(amount)
end
local ids = args.ids
if #ids == 0 then
  ids = redis.call('ZRANGEBYSCORE', key('usage', 'sandboxes'), text(args.first_day * DAY_US), '+inf')
end
for index = #ids, 1, -1 do
  if #sandboxes >= 2 * args.limit then break end
  local found = redis.call('HGETALL', key('usage', 'sandbox', ids[index]))
  local project = redis.call('HGET', key('usage', 'sandbox', ids[index]), 'project')
  if project and (args.project == '' or args.project == project) then
    sandboxes[#sandboxes + 1] = ids[index]
    sandboxes[#sandboxes + 1] = found
  end
end
return {projects, sandboxes}
