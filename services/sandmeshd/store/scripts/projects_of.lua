-- The projects of users, and those that sandboxes count in or did. Returns {{project, ...}, {project or '', ...}}.
local users, sandboxes = {}, {}
for index, user in ipairs(args.users) do users[index] = project_of(user) end
for index, id in ipairs(args.sandboxes) do sandboxes[index] = project_of_sandbox(id) or '' end
return {users, sandboxes}
