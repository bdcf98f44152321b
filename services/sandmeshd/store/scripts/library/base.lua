-- The library of the scripts, prepended to each of them. KEYS[1] is the mesh's prefix, with its hash tag, ARGV[1] the
-- arguments as JSON, further ARGV bytes. Times are microseconds of the server's clock. A record is the hash
-- sandbox:<id>; the sets, sorted sets and streams beside it are indexes over records.
local prefix = KEYS[1]
local args = cjson.decode(ARGV[1])
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])

-- A key of one to three parts. A claim makes some forty of them: each is one concatenation, and no table.
local function key(kind, name, part)
  if part then return prefix .. ':' .. kind .. ':' .. name .. ':' .. part end
  if name then return prefix .. ':' .. kind .. ':' .. name end
  return prefix .. ':' .. kind
end

-- tostring() would round numbers of this size. A sum makes 0 of minus 0, which no command takes.
local function text(number)
  return string.format('%.0f', number + 0)
end

local function record(id)
  return key('sandbox', id)
end

local function field(id, name)
  return redis.call('HGET', record(id), name) or nil
end

-- Its id is the key's, whatever a damaged field says.
local function whole(id)
  local found = redis.call('HGETALL', record(id))
  if #found > 0 then
    found[#found + 1] = 'id'
    found[#found + 1] = id
  end
  return found
end

local function existed(id)
  return redis.call('EXISTS', record(id), key('tomb', id)) > 0
end

local function notify(topic)
  redis.call('PUBLISH', key('notices'), topic)
end

-- A store that came back empty has another generation, and is open once the records are rebuilt.
local function recovering()
  if redis.call('GET', key('open')) == args.generation then return nil end
  return redis.error_reply('RECOVERING records are being rebuilt')
end

-- It rises even when the store lost its data, since the clock does.
local function next_token()
  local last = tonumber(redis.call('GET', key('token')) or '0')
  local token = text(math.max(last + 1, now))
  redis.call('SET', key('token'), token)
  return token
end

local function is_alive(owner, grace_us)
  return tonumber(redis.call('ZSCORE', key('allocators'), owner or '') or '0') >= now - grace_us
end
