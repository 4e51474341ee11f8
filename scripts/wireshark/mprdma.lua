-- MP-RDMA for Wireshark and tshark: what follows BTH in RoCEv2 packets of the MP opcodes (docs/protocol.md section 2).
--
-- The built-in dissector shows a RoCEv2 packet up to BTH; MP opcodes are "Unknown OpCode" to it, and what follows is one
-- lump. This one runs behind it (a post-dissector), adds the tree "MP-RDMA", and leaves all other packets alone.
--
--   tshark -X lua_script:scripts/wireshark/mprdma.lua -r card0.pcapng -Y 'mprdma.mpaeth.flags.window_nak == 1'
--
-- Wireshark loads it at every start from the folder "Personal Lua Plugins" (Help, About Wireshark, Folders).
-- Nobody verifies the ICRC here: neither this file nor the built-in dissector.

-- spec: begin (`make docs` writes this part from the crate `spec`; a test keeps it equal)
local UDP_PORT = 4791
local ICRC_LEN = 4
local PSN_MODULUS = 16777216
local FIRST_OPCODE, LAST_OPCODE = 0xc0, 0xdf
local UDP = {
    len = 8,
    src_port = { byte = 0, span = 2, shift = 0, bits = 16 },
    dst_port = { byte = 2, span = 2, shift = 0, bits = 16 },
    length = { byte = 4, span = 2, shift = 0, bits = 16 },
}
local BTH = {
    len = 12,
    opcode = { byte = 0, span = 1, shift = 0, bits = 8 },
    pad = { byte = 1, span = 1, shift = 4, bits = 2 },
    dqpn = { byte = 5, span = 3, shift = 0, bits = 24 },
    psn = { byte = 9, span = 3, shift = 0, bits = 24 },
}
local HEADERS = {
    mpeth = {
        title = "MPETH", len = 8,
        fields = {
            { name = "flags", byte = 0, bytes = 1 },
            { name = "wsn", byte = 1, bytes = 3 },
            { name = "offset", byte = 4, bytes = 2 },
            { name = "stamp", byte = 6, bytes = 2 },
        },
        flags = {
            { name = "retx", mask = 0x01, meaning = "Retransmission" },
            { name = "sync", mask = 0x02, meaning = "Synchronised message" },
            { name = "tail", mask = 0x04, meaning = "Last packet of its message" },
            { name = "completion", mask = 0x08, meaning = "Completion owed by the receiver" },
        },
        reserved_flags = 0xf0,
    },
    reth = {
        title = "RETH", len = 16,
        fields = {
            { name = "va", byte = 0, bytes = 8 },
            { name = "rkey", byte = 8, bytes = 4 },
            { name = "length", byte = 12, bytes = 4 },
        },
    },
    atomiceth = {
        title = "AtomicETH", len = 28,
        fields = {
            { name = "va", byte = 0, bytes = 8 },
            { name = "rkey", byte = 8, bytes = 4 },
            { name = "swap_add", byte = 12, bytes = 8 },
            { name = "compare", byte = 20, bytes = 8 },
        },
    },
    aeth = {
        title = "AETH", len = 4,
        fields = {
            { name = "syndrome", byte = 0, bytes = 1 },
            { name = "msn", byte = 1, bytes = 3 },
        },
    },
    atomicacketh = {
        title = "AtomicAckETH", len = 8,
        fields = {
            { name = "original", byte = 0, bytes = 8 },
        },
    },
    mpaeth = {
        title = "MPAETH", len = 8,
        fields = {
            { name = "flags", byte = 0, bytes = 1 },
            { name = "aack", byte = 1, bytes = 3 },
            { name = "vp_echo", byte = 4, bytes = 2 },
            { name = "stamp_echo", byte = 6, bytes = 2 },
        },
        flags = {
            { name = "retx_echo", mask = 0x01, meaning = "Answer to a retransmission" },
            { name = "ecn_echo", mask = 0x02, meaning = "Answer to a packet marked CE" },
            { name = "window_nak", mask = 0x04, meaning = "Dropped: beyond the receiver's bitmap" },
            { name = "sync_nak", mask = 0x08, meaning = "Dropped: synchronised message too early" },
            { name = "sack_map", mask = 0x10, meaning = "A SACK map follows" },
        },
        reserved_flags = 0xe0,
    },
    immdt = {
        title = "ImmDt", len = 4,
        fields = {
            { name = "data", byte = 0, bytes = 4 },
        },
    },
    ieth = {
        title = "IETH", len = 4,
        fields = {
            { name = "rkey", byte = 0, bytes = 4 },
        },
    },
}
local SACK_MAP_BYTES = { [8] = true, [16] = true, [32] = true }
local SYNDROMES = {
    ack = 0x00, rnr = 0x20, codes = 32, no_credits = 31,
    naks = {
        [0x60] = "PSN sequence error",
        [0x61] = "invalid request",
        [0x62] = "remote access error",
        [0x63] = "remote operation error",
        [0x64] = "invalid RD request",
    },
}
local OPCODES = {
    [0xc0] = { name = "SEND FIRST", headers = { "mpeth" }, payload = true, more = true },
    [0xc1] = { name = "SEND MIDDLE", headers = { "mpeth" }, payload = true, more = true },
    [0xc2] = { name = "SEND LAST", headers = { "mpeth" }, payload = true },
    [0xc3] = { name = "SEND LAST with immediate", headers = { "mpeth", "immdt" }, payload = true },
    [0xc4] = { name = "SEND ONLY", headers = { "mpeth" }, payload = true },
    [0xc5] = { name = "SEND ONLY with immediate", headers = { "mpeth", "immdt" }, payload = true },
    [0xc6] = { name = "WRITE FIRST", headers = { "mpeth", "reth" }, payload = true, more = true },
    [0xc7] = { name = "WRITE MIDDLE", headers = { "mpeth", "reth" }, payload = true, more = true },
    [0xc8] = { name = "WRITE LAST", headers = { "mpeth", "reth" }, payload = true },
    [0xc9] = { name = "WRITE LAST with immediate", headers = { "mpeth", "reth", "immdt" }, payload = true },
    [0xca] = { name = "WRITE ONLY", headers = { "mpeth", "reth" }, payload = true },
    [0xcb] = { name = "WRITE ONLY with immediate", headers = { "mpeth", "reth", "immdt" }, payload = true },
    [0xcc] = { name = "READ REQUEST", headers = { "mpeth", "reth" } },
    [0xcd] = { name = "READ RESPONSE FIRST", headers = { "mpeth" }, payload = true, more = true },
    [0xce] = { name = "READ RESPONSE MIDDLE", headers = { "mpeth" }, payload = true, more = true },
    [0xcf] = { name = "READ RESPONSE LAST", headers = { "mpeth" }, payload = true },
    [0xd0] = { name = "READ RESPONSE ONLY", headers = { "mpeth" }, payload = true },
    [0xd1] = { name = "ACK", headers = { "aeth", "mpaeth" } },
    [0xd2] = { name = "ATOMIC ACK", headers = { "mpeth", "atomicacketh" } },
    [0xd3] = { name = "COMPARE SWAP", headers = { "mpeth", "atomiceth" } },
    [0xd4] = { name = "FETCH ADD", headers = { "mpeth", "atomiceth" } },
    [0xd6] = { name = "SEND LAST with invalidate", headers = { "mpeth", "ieth" }, payload = true },
    [0xd7] = { name = "SEND ONLY with invalidate", headers = { "mpeth", "ieth" }, payload = true },
}
-- spec: end

local mprdma = Proto("mprdma", "MP-RDMA")

local malformed = ProtoExpert.new("mprdma.malformed", "Malformed MP-RDMA packet", expert.group.MALFORMED,
    expert.severity.ERROR)
mprdma.experts = { malformed }

-- Fields by name, without the prefix "mprdma.".
local fields = {}

local function declare(kind, name, ...)
    fields[name] = ProtoField[kind]("mprdma." .. name, ...)
end

local opcode_names = {}
for opcode, packet in pairs(OPCODES) do
    opcode_names[opcode] = "MP " .. packet.name
end

local syndrome_names = {}
for code, name in pairs(SYNDROMES.naks) do
    syndrome_names[code] = "NAK: " .. name
end
for code = 0, SYNDROMES.codes - 1 do
    local credits = code ~= SYNDROMES.no_credits and ", credit code " .. code or ""
    syndrome_names[SYNDROMES.ack + code] = "ACK" .. credits
    syndrome_names[SYNDROMES.rnr + code] = "RNR NAK, timer code " .. code
end

local value_names = { ["aeth.syndrome"] = syndrome_names }
local in_hex = { flags = true, va = true, rkey = true, syndrome = true, data = true }

declare("uint8", "opcode", "Opcode", base.HEX, opcode_names)
declare("uint16", "vp", "Virtual path (UDP source port)", base.DEC)
for key, header in pairs(HEADERS) do
    declare("none", key, header.title)
    for _, field in ipairs(header.fields) do
        local name = key .. "." .. field.name
        declare("uint" .. 8 * field.bytes, name, field.name:gsub("_", " "), in_hex[field.name] and base.HEX or base.DEC,
            value_names[name])
    end
    for _, flag in ipairs(header.flags or {}) do
        declare("bool", key .. ".flags." .. flag.name, flag.meaning, 8, nil, flag.mask)
    end
    if header.reserved_flags then
        declare("uint8", key .. ".flags.reserved", "Reserved", base.HEX, nil, header.reserved_flags)
    end
end
declare("bytes", "sack_map", "SACK map")
declare("uint24", "sack_map.psn", "Arrived PSN", base.DEC)
declare("bytes", "payload", "Payload")
declare("bytes", "pad", "Pad")
declare("uint32", "icrc", "ICRC, not verified", base.HEX)

mprdma.fields = fields

-- The value of a field of at most 32 bits in the bytes of its header.
local function read(header, field)
    return header(field.byte, field.span):bitfield(8 * field.span - field.shift - field.bits, field.bits)
end

-- A run over the bytes between BTH and ICRC. `values` keeps the header fields and flags found, for the Info column.
local Cursor = {}
Cursor.__index = Cursor

function Cursor:left()
    return self.stop - self.at
end

function Cursor:take(bytes)
    local range = self.source(self.at, bytes)
    self.at = self.at + bytes
    return range
end

-- Shows one extension header. Returns what is wrong, if anything is.
function Cursor:header(key, tree)
    local header = HEADERS[key]
    if self:left() < header.len then
        return header.title .. " needs " .. header.len .. " bytes, there are " .. self:left()
    end
    local range = self:take(header.len)
    local branch = tree:add(fields[key], range)
    for _, field in ipairs(header.fields) do
        local bytes = range(field.byte, field.bytes)
        local item = branch:add(fields[key .. "." .. field.name], bytes)
        if field.bytes <= 4 then
            self.values[key .. "." .. field.name] = bytes:uint()
        end
        if field.name == "flags" then
            self:flags(key, item, bytes)
        end
    end
end

function Cursor:flags(key, item, byte)
    local header = HEADERS[key]
    for _, flag in ipairs(header.flags) do
        item:add(fields[key .. ".flags." .. flag.name], byte)
        -- No bit operators: they differ between the Lua versions of Wireshark.
        if byte:uint() % (2 * flag.mask) >= flag.mask then
            self.values[key .. ".flags." .. flag.name] = true
            table.insert(self.set, (flag.name:gsub("_", " ")))
        end
    end
    item:add(fields[key .. ".flags.reserved"], byte)
end

-- Shows the map, which fills all that is left: one big-endian integer whose bit i stands for PSN aack + i.
function Cursor:sack_map(tree)
    local bytes = self:left()
    if not SACK_MAP_BYTES[bytes] then
        return "a SACK map of " .. bytes .. " bytes"
    end
    local map = self:take(bytes)
    local branch = tree:add(fields["sack_map"], map)
    local count = 0
    for i = 0, 8 * bytes - 1 do
        if map:bitfield(8 * bytes - 1 - i, 1) == 1 then
            local psn = (self.values["mpaeth.aack"] + i) % PSN_MODULUS
            branch:add(fields["sack_map.psn"], map, psn):set_generated()
            count = count + 1
        end
    end
    branch:append_text(" (" .. count .. " of " .. 8 * bytes .. " arrived)")
end

-- Shows payload and pad, which fill all that is left.
function Cursor:payload(packet, pad, tree)
    local bytes = self:left()
    if bytes > 0 and not packet.payload then
        return bytes .. " bytes of payload in a packet without payload"
    end
    if bytes % 4 ~= 0 or pad > bytes or (packet.more and pad ~= 0) then
        return "pad count " .. pad .. " does not fit " .. bytes .. " bytes of payload"
    end
    self.values.payload = bytes - pad
    if bytes > pad then
        tree:add(fields["payload"], self:take(bytes - pad))
    end
    if pad > 0 then
        tree:add(fields["pad"], self:take(pad))
    end
    local stated = self.values["reth.length"]
    if packet.payload and stated and stated ~= bytes - pad then
        return "RETH states " .. stated .. " bytes, the payload has " .. bytes - pad
    end
end

-- Shows everything behind BTH. Returns what is wrong, if anything is.
function Cursor:body(packet, pad, tree)
    for _, key in ipairs(packet.headers) do
        local problem = self:header(key, tree)
        if problem then
            return problem
        end
    end
    if self.values["mpaeth.flags.sack_map"] then
        local problem = self:sack_map(tree)
        if problem then
            return problem
        end
    end
    return self:payload(packet, pad, tree)
end

-- The line of the packet list.
local function info(name, bth, values, set)
    local parts = { string.format("MP %s QP=0x%06x PSN=%d", name, read(bth, BTH.dqpn), read(bth, BTH.psn)) }
    local function add(text, value)
        if value then
            table.insert(parts, string.format(text, value))
        end
    end
    add("AACK=%d", values["mpaeth.aack"])
    add("vp echo=%d", values["mpaeth.vp_echo"])
    add("offset=%d", values["mpeth.offset"])
    add("imm=0x%08x", values["immdt.data"])
    if values["mpeth.offset"] then
        add("%d bytes", values.payload)
    end
    local syndrome = values["aeth.syndrome"]
    if syndrome and syndrome >= SYNDROMES.ack + SYNDROMES.codes then
        add("%s", syndrome_names[syndrome] or string.format("syndrome 0x%02x", syndrome))
    end
    if #set > 0 then
        add("[%s]", table.concat(set, ", "))
    end
    return table.concat(parts, " ")
end

-- Shows the datagram whose UDP header begins at `at`, if it is an MP packet.
local function datagram(source, at, pinfo, tree)
    local start = at + UDP.len + BTH.len
    if start > source:len() then
        return
    end
    local udp, bth = source(at, UDP.len), source(at + UDP.len, BTH.len)
    local opcode = read(bth, BTH.opcode)
    if read(udp, UDP.dst_port) ~= UDP_PORT or opcode < FIRST_OPCODE or opcode > LAST_OPCODE then
        return
    end
    local stop = at + read(udp, UDP.length) - ICRC_LEN
    local cut = stop + ICRC_LEN > source:len()
    local cursor = setmetatable(
        { source = source, at = start, stop = math.min(stop, source:len()), values = {}, set = {} }, Cursor)

    local branch = tree:add(mprdma, source(at + UDP.len, math.max(cursor.stop - at - UDP.len, BTH.len)))
    branch:add(fields["opcode"], bth(BTH.opcode.byte, BTH.opcode.span))
    branch:add(fields["vp"], udp(UDP.src_port.byte, UDP.src_port.span))
    local packet = OPCODES[opcode]
    local problem
    if not packet then
        problem = "unknown opcode"
    else
        problem = cursor:body(packet, read(bth, BTH.pad), branch)
    end
    if cut then
        problem = "the capture holds the packet in part only"
    else
        branch:add(fields["icrc"], source(stop, ICRC_LEN))
    end
    if problem then
        branch:add_proto_expert_info(malformed, "Malformed MP-RDMA packet: " .. problem)
    end
    branch:append_text(", " .. (packet and packet.name or "unknown opcode"))
    pinfo.cols.protocol = "MP-RDMA"
    pinfo.cols.info = info(packet and packet.name or string.format("opcode 0x%02x", opcode), bth, cursor.values,
        cursor.set)
end

local destination_port = Field.new("udp.dstport")

-- A frame may hold more than one UDP header: in a tunnel, or the one that an ICMP error quotes.
function mprdma.dissector(_, pinfo, tree)
    for _, port in ipairs({ destination_port() }) do
        if port.value == UDP_PORT and port.source then
            datagram(port.source, port.offset - UDP.dst_port.byte, pinfo, tree)
        end
    end
end

register_postdissector(mprdma)
