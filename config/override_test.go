package config

import (
	"strings"
	"testing"
	"time"
)

func TestOverrideFaults(t *testing.T) {
	for _, tc := range []struct{ figures, override, want string }{
		{"rate: 5/s", "{rate: 1/s}", "say whom the override is for: owner, tenant, plan, user, key or from"},
		{"rate: 5/s", "{owner: acme}", "`rate` is missing in an item of a rule's `overrides`: the rule has a rate: give the override's, such as `rate: 5/s`"},
		{"rate: 5/s", "{owner: acme, rate: 1/s, limit: 1/s}", "an override has figures of the rule's own kind, and the rule has no limit"},
		{"limit: 5/min", "{owner: acme, limit: 300/h}", "limit 300/h is in another window than the rule's 5/min: write it as 300/min"},
		{"limit: 5/min", "{owner: acme, limit: 20000/min}", "limit 20000/min is too large for a sliding-log"},
		{"limit: 5/min", "{owner: acme, limit: 50/min, burst: 5}", "a limit has no burst"},
		{"rate: 5/s", "{from: office, rate: 1/s}", "takes prefixes, not lists"},
		{"rate: 5/s", "{key: my-secret, rate: 1/s}", "`key` is how the hash begins that"},
		{"rate: 5/s", "{key: 08fb, rate: 1/s}", "`key` has 4 digits of the hash: write at least 8"},
		{"rate: 5/s", "{owner: a, rate: 1/s, until: soon}", "until \"soon\" is no date"},
		{"rate: 5/s", "{owner: a, rate: 1/s, until: 2027-02-29}", "until \"2027-02-29\" is no date"},
		{"rate: 5/s", "{owner: a, rate: 1/s, until: 1970-01-01}", "not between the years"},
		{"rate: 5/s", "{owner: a, rate: 1/s}, {owner: a, rate: 2/s}", "override 2 is for the same as override 1"},
		{"rate: 5/s", "{from: [10.0.0.0/8, 192.0.2.0/24], rate: 1/s}, {from: [192.0.2.0/24, 10.0.0.0/8], rate: 2/s}", "override 2 is for the same as override 1"},
		{"rate: 5/s", "{user: " + strings.Repeat("x", 513) + ", rate: 1/s}", "user of 513 bytes: the most is 512"},
		{"rate: 5/s", "{tenant: " + strings.Repeat("x", 129) + ", rate: 1/s}", "tenant of 129 bytes: the most is 128"},
		{"rate: 5/s", "{user: a, tenant: b, rate: 1/s}, {tenant: b, user: a, rate: 2/s}", "override 2 is for the same as override 1"},
		{"rate: 5/s", "{owner: a, users: a, rate: 1/s}", "did you mean `user`?"},
		{"rate: 5/s", "{owner: a, tennant: a, rate: 1/s}", "did you mean `tenant`?"},
		{"rate: 5/s", "{owner: a, rate: 1/s, why: " + strings.Repeat("x", 201) + "}", "the most is 200"},
	} {
		_, err := ParseRule("r", []byte("{name: a, per: client, "+tc.figures+", overrides: ["+tc.override+"]}"))
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s:\n got: %v\nwant: %s", tc.override, err, tc.want)
		}
		if err != nil && strings.Contains(err.Error(), "my-secret") {
			t.Errorf("the key is told: %v", err)
		}
	}
	for _, key := range []string{"owner: a", "tenant: a", "user: a", "limit: 1/s", "until: 2027-01-01", "key: 08fb3d6e"} {
		_, err := ParseRule("r", []byte("{name: a, per: source, rate: 5/s, overrides: [{from: 10.0.0.0/8, rate: 1/s, "+key+"}]}"))
		if err == nil || !strings.Contains(err.Error(), "is for the http gate") {
			t.Errorf("%s at the network gate: %v", key, err)
		}
	}
}

func TestUntil(t *testing.T) {
	paulo, err := time.LoadLocation("America/Sao_Paulo")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		in   string
		zone *time.Location
		want string
	}{
		{"2027-03-31", time.UTC, "2027-04-01T00:00:00Z"},
		{"2027-03-31", paulo, "2027-04-01T03:00:00Z"},
		{"2027-12-31", time.UTC, "2028-01-01T00:00:00Z"},
		{"2027-03-31T12:00:00+02:00", paulo, "2027-03-31T10:00:00Z"},
	} {
		end, err := ParseUntil(tc.in, tc.zone)
		if got := end.Format(time.RFC3339); err != nil || got != tc.want {
			t.Errorf("%s: %s %v, want %s", tc.in, got, err, tc.want)
		}
		if again, err := ParseUntil(untilText(end, tc.zone), tc.zone); err != nil || !again.Equal(end) {
			t.Errorf("%s is written as %s", tc.in, untilText(end, tc.zone))
		}
	}
}

// A date ends in the zone that the rule's quota has its days in.
func TestUntilInTheRulesZone(t *testing.T) {
	const quota = "{name: a, per: key, quota: 5/day, time_zone: America/Sao_Paulo, overrides: [{owner: acme, quota: 9/day, until: 2027-03-31}]}"
	r := mustRule(t, quota)
	if got := r.Overrides[0].Until.Format(time.RFC3339); got != "2027-04-01T03:00:00Z" {
		t.Errorf("it ends at %s, want midnight in São Paulo", got)
	}
	if !strings.Contains(r.Text, "until: 2027-03-31}") {
		t.Errorf("the text is %s", r.Text)
	}
	if again := mustRule(t, r.Text); !again.Overrides[0].Until.Equal(r.Overrides[0].Until) {
		t.Errorf("%s reads back as %s", r.Text, again.Overrides[0].Until)
	}
}

func TestWithOverrides(t *testing.T) {
	r := mustRule(t, "{name: a, per: key, rate: 5/s, overrides: [{owner: acme, rate: 10/s}, {plan: paid, rate: 20/s}]}")
	more := mustRule(t, "{name: a, per: key, rate: 5/s, overrides: [{plan: paid, rate: 30/s}]}").Overrides
	got := r.WithOverrides(more)
	want := "{name: a, per: key, rate: 5/s, burst: 5, overrides: [{plan: paid, rate: 30/s, burst: 30}, {owner: acme, rate: 10/s, burst: 10}]}"
	if got.Text != want {
		t.Errorf("%s, want %s", got.Text, want)
	}
	if len(r.Overrides) != 2 || r.Overrides[0].Owner != "acme" {
		t.Errorf("the rule itself became %v", r.Overrides)
	}
}

// An override for whom no request can be known to be from is warned about.
func TestOverrideWarnings(t *testing.T) {
	const keys = "identities: {key: {bearer: true}}"
	for _, tc := range []struct{ http, override, want string }{
		{keys, "{tenant: shop, rate: 9/s}", "the override for tenant shop does nothing: no http.identities.key.file"},
		{keys, "{user: alice, rate: 9/s}", "the override for user alice does nothing: no http.identities.user"},
		{keys, "{key: 08fb3d6e, rate: 9/s}", ""},
		{"identities: {user: {header: X-User}}, proxies: [10.0.0.1]", "{user: alice, rate: 9/s}", ""},
		{"identities: {user: {header: X-User}}, proxies: [10.0.0.1]", "{key: 08fb3d6e, rate: 9/s}", "the override for key 08fb3d6e does nothing: no http.identities.key"},
	} {
		c := mustParse(t, "version: 1\nhttp: {listen: \":80\", upstream: \"http://a\", "+tc.http+"}\nrules: [{name: a, per: client, rate: 5/s, overrides: ["+tc.override+"]}]\n")
		all := strings.Join(Warnings(c), "\n")
		if tc.want == "" && strings.Contains(all, "override") || !strings.Contains(all, tc.want) {
			t.Errorf("%s with %s: %q, want %q", tc.override, tc.http, all, tc.want)
		}
	}
}
