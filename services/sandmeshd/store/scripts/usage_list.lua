-- Usage as it was counted last: of projects since a day, or since ever where `first_day` is 0, and of the sandboxes that were
-- counted last. Returns {{measure:project, amount, ...}, {id, {field, value, ...}, ...}}.
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
local function list(ids)
  for _, id in ipairs(ids) do
    if #sandboxes >= 2 * args.limit then return end
    local project = redis.call('HGET', key('usage', 'sandbox', id), 'project')
    if project and (args.project == '' or args.project == project) then
      sandboxes[#sandboxes + 1] = id
      sandboxes[#sandboxes + 1] = redis.call('HGETALL', key('usage', 'sandbox', id))
    end
  end
end
list(args.ids)
local from, offset = text(args.first_day * DAY_US), 0
while #args.ids == 0 and #sandboxes < 2 * args.limit do
  local ids = redis.call('ZREVRANGEBYSCORE', key('usage', 'sandboxes'), '+inf', from, 'LIMIT', offset, args.limit)
  if #ids == 0 then break end
  list(ids)
  offset = offset + args.limit
end
return {projects, sandboxes}
