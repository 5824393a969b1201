package config

// level is one kind of mapping of the grammar, with the keys that it may have.
type level struct {
	path  string // as docs/reference.yaml nests it; "" for the file itself
	title string // as messages call it
	keys  []key
}

// key is one key of a level. def is what holds when it is absent, in the words
// of the file; "" where absence means none or where it follows from other keys.
type key struct{ name, def string }

// The grammar of this version. docs/reference.yaml lists the same keys with
// the same defaults, and a test keeps the two together.
var (
	fileLevel = &level{"", "the file", []key{
		{"version", ""}, {"mode", "enforce"}, {"network", ""}, {"allow", ""}, {"block", ""},
		{"lists", ""}, {"http", ""}, {"rules", ""}, {"fleet", ""}, {"admin", ""}, {"state", ""},
	}}
	listLevel    = &level{"lists.NAME", "a list", []key{{"file", ""}, {"url", ""}, {"interval", "1h"}, {"sha256", ""}}}
	networkLevel = &level{"network", "`network`", []key{
		{"interfaces", ""}, {"attach_mode", "auto"}, {"management", ""}, {"slots", "1048576"}, {"repair", "true"},
		{"leash", "7d"},
	}}
	managementLevel = &level{"network.management", "`network.management`", []key{
		{"sources", ""}, {"ports", "tcp/22"},
	}}
	httpLevel = &level{"http", "`http`", []key{
		{"listen", ""}, {"listeners", ""}, {"upstream", ""}, {"proxies", ""}, {"identities", ""},
		{"exempt", ""}, {"user", "headgate"}, {"ipv6_prefix", "64"}, {"answers", ""}, {"client_from", "x-forwarded-for"},
		{"tls", ""}, {"memory", "256MiB"}, {"connections_per_client", "256"}, {"answer_timeout", "60s"},
		{"upstreams", ""}, {"access_log", ""},
	}}
	accessLogLevel = &level{"http.access_log", "`http.access_log`", []key{
		{"file", ""}, {"format", "json"}, {"passed", "true"}, {"refused", "10/s"},
	}}
	listenerLevel = &level{"http.listeners", "an item of `http.listeners`", []key{
		{"address", ""}, {"door", "proxy"}, {"upstream", ""}, {"dialect", ""}, {"proxy_protocol", "false"},
		{"tls", ""}, {"upstreams", ""},
	}}
	upstreamLevel = &level{"http.upstreams", "an item of `upstreams`", []key{
		{"match", ""}, {"url", ""}, {"balance", "round-robin"}, {"check", ""},
	}}
	upstreamMatchLevel = &level{"http.upstreams.match", "an upstream's `match`", []key{{"host", ""}, {"path", ""}}}
	checkLevel         = &level{"http.upstreams.check", "an upstream's `check`", []key{{"path", ""}, {"interval", "5s"}}}
	tlsLevel           = &level{"http.listeners.tls", "`tls`", []key{{"certificates", ""}, {"min_version", "1.2"}}}
	certificateLevel   = &level{"http.listeners.tls.certificates", "an item of `certificates`", []key{{"cert_file", ""}, {"key_file", ""}}}
	answersLevel       = &level{"http.answers", "`http.answers`", []key{
		{"dialect", "ietf"}, {"reset", "delta"}, {"jitter", "0%"}, {"body", ""}, {"cors", ""},
	}}
	bodyLevel       = &level{"http.answers.body", "`http.answers.body`", []key{{"file", ""}, {"type", "text/html"}}}
	corsLevel       = &level{"http.answers.cors", "`http.answers.cors`", []key{{"origins", ""}}}
	identitiesLevel = &level{"http.identities", "`http.identities`", []key{{"key", ""}, {"user", ""}}}
	keyLevel        = &level{"http.identities.key", "`http.identities.key`", []key{
		{"header", ""}, {"bearer", "false"}, {"query", ""}, {"file", ""},
	}}
	userLevel = &level{"http.identities.user", "`http.identities.user`", []key{
		{"jwt", ""}, {"header", ""}, {"key_file", ""}, {"jwks_file", ""}, {"issuer", ""}, {"audience", ""}, {"algorithms", ""},
	}}
	exemptLevel = &level{"http.exempt", "an item of `http.exempt`", []key{{"path", ""}, {"from", ""}}}
	ruleLevel   = &level{"rules", "a rule", []key{
		{"name", ""}, {"gate", ""}, {"match", ""}, {"per", ""}, {"rate", ""}, {"burst", ""}, {"limit", ""},
		{"quota", ""}, {"time_zone", "UTC"}, {"anchor", ""}, {"count_refused", "false"}, {"soft", ""}, {"memory", ""},
		{"scope", ""}, {"outage", ""},
		{"algorithm", ""}, {"mode", "enforce"}, {"anonymous", ""}, {"unknown", ""}, {"overrides", ""}, {"then", ""},
	}}
	matchLevel = &level{"rules.match", "a rule's `match`", []key{
		{"from", ""}, {"to", ""}, {"except", ""}, {"protocol", ""}, {"ports", ""}, {"source_ports", ""}, {"flags", ""},
		{"icmp_types", ""}, {"vlan", ""}, {"interfaces", ""}, {"method", ""}, {"path", ""}, {"host", ""},
		{"headers", ""}, {"identity", ""}, {"plan", ""},
	}}
	overrideLevel = &level{"rules.overrides", "an item of a rule's `overrides`", []key{
		{"owner", ""}, {"tenant", ""}, {"plan", ""}, {"user", ""}, {"key", ""}, {"from", ""},
		{"rate", ""}, {"burst", ""}, {"limit", ""}, {"quota", ""}, {"until", ""}, {"why", ""},
	}}
	thenLevel      = &level{"rules.then", "a rule's `then`", []key{{"block", ""}, {"after", ""}}}
	anonymousLevel = &level{"rules.anonymous", "a rule's `anonymous`", []key{
		{"per", "client"}, {"rate", ""}, {"burst", ""}, {"limit", ""}, {"quota", ""},
	}}
	fleetLevel = &level{"fleet", "`fleet`", []key{
		{"name", ""}, {"secret_file", ""}, {"hosts", "1"}, {"redis", ""},
	}}
	redisLevel = &level{"fleet.redis", "`fleet.redis`", []key{
		{"addresses", ""}, {"sentinel", ""}, {"cluster", "false"}, {"user", ""}, {"password_file", ""}, {"tls", ""},
	}}
	redisTLSLevel = &level{"fleet.redis.tls", "`fleet.redis.tls`", []key{
		{"ca_file", ""}, {"cert_file", ""}, {"key_file", ""}, {"server_name", ""},
	}}
	adminLevel = &level{"admin", "`admin`", []key{
		{"socket", "/run/headgate/headgate.sock"}, {"listen", "127.0.0.1:9317"},
	}}
	stateLevel = &level{"state", "`state`", []key{
		{"dir", "/var/lib/headgate"}, {"pins", "/sys/fs/bpf/headgate"},
	}}

	// keyFileLevel is an item of the key file, which is a file of its own.
	keyFileLevel = &level{"(key file)", "an item of the key file", []key{
		{"sha256", ""}, {"owner", ""}, {"tenant", ""}, {"plan", ""},
	}}
)

// levels are those of the configuration file, outer before inner: a misplaced
// key is sent to the first that has it.
var levels = []*level{
	ruleLevel, matchLevel, fileLevel, networkLevel, managementLevel, httpLevel, answersLevel, listenerLevel,
	identitiesLevel, keyLevel, userLevel, exemptLevel, anonymousLevel, overrideLevel, thenLevel, listLevel, adminLevel, stateLevel,
	bodyLevel, corsLevel, accessLogLevel, fleetLevel, redisLevel, redisTLSLevel,
	tlsLevel, certificateLevel, upstreamLevel, upstreamMatchLevel, checkLevel,
}

// later is what the design has and this version has not, by level path, as
// keys and as words of a key's value. A limiter that skipped one silently
// would look as if it worked, so each is an error.
var later = map[string][]string{
	"":                {"escalate", "include"},
	"http":            {"terminates"},
	"http.identities": {"tenant"},
	"rules": {
		"concurrent", "cost", "until",
	},
	"rules.match":     {"user", "tenant", "owner"},
	"rules.anonymous": {"concurrent", "overrides"},

	"per value":       {"route"},
	"algorithm value": {"leaky-bucket", "gcra"},
	"door value":      {"forward-auth", "nginx", "traefik", "caddy", "haproxy", "envoy", "rls", "middleware", "rlqs"},
}

// foreign are words that other tools use, and ours. They are tried after an
// exact match on another level and before near spellings.
var foreign = map[string]string{
	"by": "per", "limit_by": "per", "keyed_by": "per", "id": "name",
	"timezone": "time_zone", "tz": "time_zone", "billing_day": "anchor", "allowance": "quota", "count_failed": "count_refused",
	"requests": "limit", "max": "limit", "average": "rate", "rps": "rate", "pps": "rate",
	"burst_size": "burst", "capacity": "burst",
	"whitelist": "allow", "allowlist": "allow", "blacklist": "block", "blocklist": "block", "deny": "block",
	"iface": "interfaces", "interface": "interfaces", "devices": "interfaces",
	"dry_run": "mode", "shadow": "mode", "xdp_mode": "attach_mode",
	"port": "ports", "methods": "method", "paths": "path", "hosts": "host", "url": "path", "uri": "path",
	"proto": "protocol", "trusted_proxies": "proxies", "trusted": "proxies", "backend": "upstream",
	"source": "from", "src": "from", "saddr": "from", "sources": "from", "destination": "to", "dst": "to", "daddr": "to",
	"unless": "except", "exclude": "except", "sport": "source_ports", "src_ports": "source_ports", "source_port": "source_ports",
	"dport": "ports", "dst_ports": "ports", "destination_ports": "ports", "tcp_flags": "flags", "tcpflags": "flags",
	"icmp_type": "icmp_types", "icmp": "icmp_types", "vlans": "vlan", "vlan_id": "vlan", "vlan_ids": "vlan",
	"sets": "lists", "ipsets": "lists", "feeds": "lists", "refresh": "interval", "checksum": "sha256", "ban": "then",
	"max_connections": "connections_per_client", "connections": "connections_per_client", "limit_conn": "connections_per_client",
	"proxy_read_timeout": "answer_timeout", "upstream_timeout": "answer_timeout", "timeout": "answer_timeout",
	"bind": "listen", "hash": "sha256", "where": "match", "action": "mode", "enabled": "mode",
}

func (l *level) has(name string) bool {
	_, ok := l.find(name)
	return ok
}

func (l *level) find(name string) (key, bool) {
	for _, k := range l.keys {
		if k.name == name {
			return k, true
		}
	}
	return key{}, false
}

// names returns the keys' names in the order of the grammar.
func (l *level) names() []string {
	names := make([]string, len(l.keys))
	for i, k := range l.keys {
		names[i] = k.name
	}
	return names
}
