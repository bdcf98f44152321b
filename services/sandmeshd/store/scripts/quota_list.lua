-- Quotas with what is in use, of every project and caller that has either. Returns {kind, name, limits as {name, limit, ...},
-- {sandboxes, memory, cpu, creates, snapshot bytes, ports, calls}, the users of a project, ...}.
local answer, seen, members = {}, {}, {}
local function add(kind, name)
  if seen[kind .. ':' .. name] then return end
  seen[kind .. ':' .. name] = true
  local used = {}
  for _, quota in ipairs(QUOTAS) do
    used[#used + 1] = text(in_use(kind, name, quota))
  end
  for _, quota in ipairs(HOLDINGS) do used[#used + 1] = text(held_by(kind, name, quota)) end
  local limits = redis.call('HGETALL', key('quota', kind, name))
  for _, part in ipairs({kind, name, limits, used, kind == 'project' and members[name] or {}}) do
    answer[#answer + 1] = part
  end
end
local projects = redis.call('HGETALL', key('projects'))
for index = 1, #projects, 2 do
  local project = projects[index + 1]
  members[project] = members[project] or {}
  table.insert(members[project], projects[index])
end
add('project', 'default')
for project in pairs(members) do add('project', project) end
for _, owner in ipairs(redis.call('SMEMBERS', key('quotas'))) do add(string.match(owner, '^(%a+):(.*)$')) end
for _, kind in ipairs({'project', 'caller'}) do
  for _, name in ipairs(redis.call('SMEMBERS', key('names', kind))) do add(kind, name) end
end
return answer
