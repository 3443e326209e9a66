// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/pkg/config"
)

// fixture holds rules with a clock and the lines for the user.
type fixture struct {
	*Rules
	now time.Time

	mu    sync.Mutex
	lines []string
}

func fixed(t *testing.T, allow ...string) *fixture {
	t.Helper()
	f := &fixture{now: time.Unix(1e9, 0)}
	o := Options{
		Nets: []netip.Prefix{netip.MustParsePrefix("192.168.127.0/24")}, Hosts: []netip.Addr{netip.MustParseAddr("192.168.127.254")},
		RouteType: func(_ string, _, to netip.AddrPort) (uint8, error) {
			if to.Addr() == netip.MustParseAddr("10.99.99.99") {
				return 0, errors.New("no answer")
			}
			if to.Addr() == netip.MustParseAddr("10.0.0.7") {
				return unix.RTN_LOCAL, nil
			}
			return unix.RTN_UNICAST, nil
		},
		Now: func() time.Time { return f.now },
		Notify: func(line string) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.lines = append(f.lines, line)
		},
	}
	for _, s := range allow {
		a, err := config.ParseAllow(s)
		if err != nil {
			t.Fatal(err)
		}
		o.Allow = append(o.Allow, a)
	}
	f.Rules = New(o)
	t.Cleanup(f.Close)
	return f
}

func (f *fixture) permits(to string) bool {
	report := f.Refuse(Socket{Protocol: "tcp", To: netip.MustParseAddrPort(to)})
	return report == nil || report() == nil
}

func query(name string, typ dnsmessage.Type) []byte {
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 0x4242, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: typ, Class: dnsmessage.ClassINET}},
	}
	b, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return b
}

// record is a record of an answer.
type record struct {
	owner string
	ttl   uint32
	to    string // an address, or an alias
}

// resolve queries a name and answers with records. It returns the program's answer.
func (f *fixture) resolve(t *testing.T, name string, records ...record) dnsmessage.Message {
	t.Helper()
	q, refusal := f.Query(query(name, dnsmessage.TypeA), Socket{})
	if q == nil {
		return parsed(t, refusal)
	}
	m := parsed(t, q.Wire)
	m.Response = true
	for _, r := range records {
		h := dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(r.owner), Class: dnsmessage.ClassINET, TTL: r.ttl}
		a, err := netip.ParseAddr(r.to)
		switch {
		case err != nil:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName(r.to)}})
		case a.Is4():
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: a.As4()}})
		default:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	got := parsed(t, q.Answer(b))
	if got.ID != 0x4242 || got.Questions[0].Name.String() != name {
		t.Errorf("%s: the answer has ID %#x and the name %s", name, got.ID, got.Questions[0].Name)
	}
	return got
}

func parsed(t *testing.T, b []byte) (m dnsmessage.Message) {
	t.Helper()
	if err := m.Unpack(b); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestAnswers checks which addresses an answer permits.
func TestAnswers(t *testing.T) {
	for _, tc := range []struct {
		what    string
		name    string
		records []record
		to      string
		want    bool
	}{
		{"an address", "a.example.", []record{{"a.example.", 60, "10.1.0.1"}}, "10.1.0.1:443", true},
		{"another case", "A.eXample.", []record{{"A.EXAMPLE.", 60, "10.1.0.1"}}, "10.1.0.1:443", true},
		{"another port", "a.example.", []record{{"a.example.", 60, "10.1.0.1"}}, "10.1.0.1:80", false},
		{"another address", "a.example.", []record{{"a.example.", 60, "10.1.0.1"}}, "10.1.0.2:443", false},
		{"any port", "x.sub.example.", []record{{"x.sub.example.", 60, "10.1.0.1"}}, "10.1.0.1:8080", true},
		{"DNS on any port", "x.sub.example.", []record{{"x.sub.example.", 60, "10.1.0.1"}}, "10.1.0.1:53", false},
		{"DoT on any port", "x.sub.example.", []record{{"x.sub.example.", 60, "10.1.0.1"}}, "10.1.0.1:853", false},
		{"IPv6", "a.example.", []record{{"a.example.", 60, "fd01::1"}}, "[fd01::1]:443", true},
		{"a mapped address", "a.example.", []record{{"a.example.", 60, "::ffff:10.1.0.1"}}, "10.1.0.1:443", true},
		{"a mapped destination", "a.example.", []record{{"a.example.", 60, "10.1.0.1"}}, "[::ffff:10.1.0.1]:443", true},
		{"an alias", "a.example.", []record{{"a.example.", 60, "b.other."}, {"b.other.", 60, "10.1.0.1"}}, "10.1.0.1:443", true},
		{"aliases in another order", "a.example.", []record{{"c.other.", 60, "10.1.0.1"}, {"b.other.", 60, "c.other."}, {"a.example.", 60, "b.other."}}, "10.1.0.1:443", true},
		{"an alias to itself", "a.example.", []record{{"a.example.", 60, "a.example."}}, "10.1.0.1:443", false},
		{"a record of another name", "a.example.", []record{{"b.other.", 60, "10.1.0.1"}}, "10.1.0.1:443", false},
		{"a name that is not allowed", "b.other.", []record{{"b.other.", 60, "10.1.0.1"}}, "10.1.0.1:443", false},
		{"loopback", "a.example.", []record{{"a.example.", 60, "127.0.0.1"}}, "127.0.0.1:443", false},
		{"mapped loopback", "a.example.", []record{{"a.example.", 60, "::ffff:127.0.0.1"}}, "127.0.0.1:443", false},
		{"IPv6 loopback", "a.example.", []record{{"a.example.", 60, "::1"}}, "[::1]:443", false},
		{"this network", "a.example.", []record{{"a.example.", 60, "0.0.0.0"}}, "0.0.0.0:443", false},
		{"an address of the host", "a.example.", []record{{"a.example.", 60, "10.0.0.7"}}, "10.0.0.7:443", false},
		{"an address that may be the host's", "a.example.", []record{{"a.example.", 60, "10.99.99.99"}}, "10.99.99.99:443", false},
		{"the host's alias", "a.example.", []record{{"a.example.", 60, "192.168.127.254"}}, "192.168.127.254:443", false},
		{"link-local", "a.example.", []record{{"a.example.", 60, "169.254.169.254"}}, "169.254.169.254:443", false},
		{"multicast", "a.example.", []record{{"a.example.", 60, "224.0.0.251"}}, "224.0.0.251:443", false},
	} {
		f := fixed(t, "a.example:443", "*.sub.example")
		f.resolve(t, tc.name, tc.records...)
		if f.permits(tc.to) != tc.want {
			t.Errorf("%s: %s is permitted: %v", tc.what, tc.to, !tc.want)
		}
	}
}

// TestPrefixes checks rules for addresses.
func TestPrefixes(t *testing.T) {
	f := fixed(t, "10.0.0.0/8:443", "10.2.0.1", "192.168.127.254:8080", "10.0.0.7:22", "0.0.0.0/0:9", "[::/0]:9", "10.3.0.1:53", "127.0.0.1:1")
	for to, want := range map[string]bool{
		"10.1.0.1:443": true, "10.1.0.1:80": false, "10.2.0.1:80": true, "10.2.0.1:53": false, "10.3.0.1:53": true,
		"192.168.127.254:8080": true, "192.168.127.254:9": false, "192.168.127.1:9": false, "10.0.0.7:22": true, "10.0.0.7:443": false,
		"203.0.113.1:9": true, "0.0.0.0:9": false, "127.0.0.1:9": false, "127.0.0.1:1": false, "255.255.255.255:9": false,
		"169.254.169.254:9": false, "[fe80::1]:9": false, "[fd00::1]:9": true, "[ff02::1]:9": false, "[::1]:9": false, "[::]:9": false,
		"[::ffff:127.0.0.1]:9": false, "[::ffff:10.0.0.7]:443": false,
	} {
		if f.permits(to) != want {
			t.Errorf("%s is permitted: %v", to, !want)
		}
	}
	f = fixed(t, "10.0.0.0/8:5432", "10.2.0.0/16:80-81/tcp", "10.3.0.0/16/udp", "10.3.0.1", "[fd00::/8]:443")
	for to, want := range map[string]string{
		"10.1.2.3:443":    "10.0.0.0/8 is only allowed on port 5432",
		"10.2.0.1:5433":   "10.2.0.0/16 is only allowed on ports 80-81 of tcp",
		"10.3.0.2:80":     "10.3.0.0/16 is only allowed on udp",
		"10.3.0.1:53":     "port 53 is for name servers; only --allow 10.3.0.1:53 permits it",
		"[fd00::1]:80":    "fd00::/8 is only allowed on port 443",
		"203.0.113.1:443": "no allowed name has resolved to this address",
		"203.0.113.1:53":  "only the gateway resolves names",
	} {
		if _, err := f.Open(Socket{Protocol: "tcp", To: netip.MustParseAddrPort(to)}); err == nil || !strings.HasSuffix(err.Error(), ": "+want) {
			t.Errorf("%s: %v, want %q", to, err, want)
		}
	}
}

// TestLifetimes checks that an answer permits its addresses only for its lifetime.
func TestLifetimes(t *testing.T) {
	f := fixed(t, "a.example")
	f.resolve(t, "a.example.", record{"a.example.", 300, "b.other."}, record{"b.other.", 100, "10.1.0.1"})
	f.resolve(t, "a.example.", record{"a.example.", 0, "10.1.0.2"})
	f.resolve(t, "a.example.", record{"a.example.", 1 << 31, "10.1.0.3"})
	f.resolve(t, "a.example.", record{"a.example.", 1<<31 - 1, "10.1.0.4"})
	for _, step := range []struct {
		after time.Duration
		want  [4]bool
	}{
		{29 * time.Second, [4]bool{true, true, true, true}},
		{30 * time.Second, [4]bool{true, false, false, true}},
		{100 * time.Second, [4]bool{false, false, false, true}},
		{24 * time.Hour, [4]bool{}},
	} {
		f.now = time.Unix(1e9, 0).Add(step.after)
		for n, want := range step.want {
			to := fmt.Sprintf("10.1.0.%d:443", n+1)
			if f.permits(to) != want {
				t.Errorf("%s after %v is permitted: %v", to, step.after, !want)
			}
		}
	}
	if _, err := f.Open(Socket{Protocol: "tcp", To: netip.MustParseAddrPort("10.1.0.1:443")}); err == nil || !strings.Contains(err.Error(), "a.example has expired") {
		t.Error(err)
	}
}

// TestQueries checks which queries reach a name server, and that they contain only
// the name and the type.
func TestQueries(t *testing.T) {
	f := fixed(t, "a.example", "*.sub.example")
	q := func(name string, typ dnsmessage.Type) []byte { return query(name, typ) }
	change := func(b []byte, at int, c byte) []byte { b[at] = c; return b }
	long := strings.Repeat("a.", 118) + "sub.example."
	for what, tc := range map[string]struct {
		msg  []byte
		want dnsmessage.RCode // of the refusal; 255: passed on
	}{
		"allowed":          {q("A.Example.", dnsmessage.TypeA), 255},
		"below":            {q("x.y.sub.example.", dnsmessage.TypeAAAA), 255},
		"HTTPS":            {q("a.example.", dnsmessage.TypeHTTPS), 255},
		"apex":             {q("sub.example.", dnsmessage.TypeA), dnsmessage.RCodeNameError},
		"not allowed":      {q("evil.org.", dnsmessage.TypeA), dnsmessage.RCodeNameError},
		"suffix":           {q("a.example.evil.org.", dnsmessage.TypeA), dnsmessage.RCodeNameError},
		"prefix":           {q("nota.example.", dnsmessage.TypeA), dnsmessage.RCodeNameError},
		"root":             {q(".", dnsmessage.TypeA), dnsmessage.RCodeNameError},
		"strange letters":  {q("x\x00 \x1b.sub.example.", dnsmessage.TypeA), dnsmessage.RCodeNameError},
		"a dot in a label": {change(q("axb.sub.example.", dnsmessage.TypeA), dnsHeader+2, '.'), dnsmessage.RCodeNameError},
		"TXT":              {q("a.example.", dnsmessage.TypeTXT), dnsmessage.RCodeSuccess},
		"NULL":             {q("a.example.", 10), dnsmessage.RCodeSuccess},
		"ANY":              {q("a.example.", dnsmessage.TypeALL), dnsmessage.RCodeSuccess},
		"class CHAOS":      {change(q("a.example.", dnsmessage.TypeA), dnsHeader+14, 3), dnsmessage.RCodeSuccess},
		"two questions":    {change(q("a.example.", dnsmessage.TypeA), 5, 2), dnsmessage.RCodeFormatError},
		"an update":        {change(q("a.example.", dnsmessage.TypeA), 2, 5<<3), dnsmessage.RCodeFormatError},
		"a pointer":        {change(q("a.example.", dnsmessage.TypeA), dnsHeader, 0xc0), dnsmessage.RCodeFormatError},
		"a cut name":       {q("a.example.", dnsmessage.TypeA)[:dnsHeader+5], dnsmessage.RCodeFormatError},
		"a long name":      {q(long, dnsmessage.TypeA), 255},
	} {
		got, refusal := f.Query(tc.msg, Socket{})
		if (got != nil) != (tc.want == 255) {
			t.Errorf("%s: passed on: %v", what, got != nil)
			continue
		}
		if got == nil {
			var p dnsmessage.Parser // the question may be too strange for the parser
			if h, err := p.Start(refusal); err != nil || h.RCode != tc.want || !h.Response || h.ID != 0x4242 || refusal[7] != 0 {
				t.Errorf("%s: %+v, %v", what, h, err)
			}
		}
	}
	m := parsed(t, q("a.example.", dnsmessage.TypeA))
	m.Additionals = []dnsmessage.Resource{
		{Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName("."), Class: 4096}, Body: &dnsmessage.OPTResource{Options: []dnsmessage.Option{{Code: 65001, Data: []byte("secret")}}}},
		{Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName("secret."), Class: 1}, Body: &dnsmessage.TXTResource{TXT: []string{"secret"}}},
	}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	b = append(b, "secret"...)
	got, _ := f.Query(b, Socket{})
	if got == nil || strings.Contains(string(got.Wire), "secret") {
		t.Errorf("the name server receives the program's data: %q", got.Wire)
	}
	for _, short := range [][]byte{nil, make([]byte, 11), change(q("a.example.", dnsmessage.TypeA), 2, 0x80)} {
		if got, refusal := f.Query(short, Socket{}); got != nil || refusal != nil {
			t.Errorf("%x: %v, %x", short, got, refusal)
		}
	}
}

// TestForeignAnswers checks that an answer to another query permits nothing.
func TestForeignAnswers(t *testing.T) {
	f := fixed(t, "a.example")
	q, _ := f.Query(query("a.example.", dnsmessage.TypeA), Socket{})
	for what, change := range map[string]func(*dnsmessage.Message){
		"ID":       func(m *dnsmessage.Message) { m.ID++ },
		"name":     func(m *dnsmessage.Message) { m.Questions[0].Name = dnsmessage.MustNewName("b.example.") },
		"type":     func(m *dnsmessage.Message) { m.Questions[0].Type = dnsmessage.TypeAAAA },
		"a query":  func(m *dnsmessage.Message) { m.Response = false },
		"no name":  func(m *dnsmessage.Message) { m.Questions = nil },
		"an error": func(m *dnsmessage.Message) { m.RCode = dnsmessage.RCodeServerFailure },
	} {
		m := parsed(t, q.Wire)
		m.Response = true
		m.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName("a.example."), Class: dnsmessage.ClassINET, TTL: 60},
			Body:   &dnsmessage.AResource{A: [4]byte{10, 1, 0, 1}},
		}}
		change(&m)
		b, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		if a := parsed(t, q.Answer(b)); a.RCode != dnsmessage.RCodeServerFailure || f.permits("10.1.0.1:443") {
			t.Errorf("%s: %v", what, a.RCode)
		}
	}
	if a := parsed(t, q.Answer([]byte("rubbish"))); a.RCode != dnsmessage.RCodeServerFailure {
		t.Error(a.RCode)
	}
}

// TestSecondFinding10Names checks that the user learns that there are more refusals than lines,
// of names, destinations and addresses in answers: finding 10 of the second review.
func TestSecondFinding10Names(t *testing.T) {
	for what, refuse := range map[string]func(f *fixture, i int){
		"names":        func(f *fixture, i int) { f.Query(query(fmt.Sprintf("n%d.org.", i), dnsmessage.TypeA), Socket{}) },
		"destinations": func(f *fixture, i int) { f.permits(fmt.Sprintf("10.5.0.%d:80", i)) },
		"answers": func(f *fixture, i int) {
			f.resolve(t, "a.example.", record{"a.example.", 60, fmt.Sprintf("127.0.0.%d", i)})
		},
	} {
		for n, want := range map[int]bool{maxLines: false, maxLines + 1: true} {
			f := fixed(t, "*.example")
			for i := range 2 * n {
				refuse(f, i%n)
			}
			f.Close()
			if lines := strings.Join(f.lines, "\n"); strings.Contains(lines, "further refusals are only counted") != want || len(f.lines) < n {
				t.Errorf("%d %s: %d lines:\n%s", n, what, len(f.lines), lines)
			}
		}
	}
}

// TestChange checks that changes apply to what has resolved already, all of them or none.
func TestChange(t *testing.T) {
	f := fixed(t, "a.example:80", "10.1.0.0/16:80", "10.1.0.0/16:80")
	parse := func(rules ...string) (all []config.Allow) {
		for _, s := range rules {
			a, err := config.ParseAllow(s)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, a)
		}
		return all
	}
	check := func(when string, want map[string]bool) {
		t.Helper()
		for to, permitted := range want {
			if f.permits(to) != permitted {
				t.Errorf("%s: %s: permitted %v", when, to, !permitted)
			}
		}
	}
	f.resolve(t, "a.example.", record{"a.example.", 60, "10.2.0.1"})
	check("at the start", map[string]bool{"10.2.0.1:80": true, "10.2.0.1:443": false, "10.1.0.1:80": true})
	if err := f.Change(parse("*.example:443", "a.example:443"), parse("10.1.0.0/16:80")); err != nil {
		t.Error(err)
	}
	check("changed", map[string]bool{"10.2.0.1:80": true, "10.2.0.1:443": true, "10.1.0.1:80": false})
	if p := f.Part(0); p.Total != 3 || len(p.Rules) != 3 || p.Rules[1].Rule != "*.example:443" {
		t.Errorf("%+v", p)
	}
	if err := f.Change(parse("10.3.0.0/16"), parse("a.example:80", "b.example")); err == nil || !strings.Contains(err.Error(), "there is no rule b.example") {
		t.Error(err)
	}
	check("not changed", map[string]bool{"10.2.0.1:80": true, "10.3.0.1:80": false})
	if err := f.Change(nil, parse("a.example:80", "a.example:443", "*.example:443")); err != nil {
		t.Error(err)
	}
	check("removed", map[string]bool{"10.2.0.1:80": false, "10.2.0.1:443": false})
	if q, _ := f.Query(query("a.example.", dnsmessage.TypeA), Socket{}); q != nil {
		t.Error("a removed rule permits a query")
	}
	if err := f.Change(parse("a.example:80"), nil); err != nil {
		t.Error(err)
	}
	check("added again", map[string]bool{"10.2.0.1:80": false})
	f.resolve(t, "a.example.", record{"a.example.", 60, "10.2.0.1"})
	check("resolved again", map[string]bool{"10.2.0.1:80": true, "10.2.0.1:443": false})
}

// TestLimits checks that rules with limits permit their connections and bytes, and no more,
// although many flows open and send at once. Another rule permits what is left.
func TestLimits(t *testing.T) {
	f := fixed(t, "10.1.0.0/16:80,connections=20", "a.example,sent=1000", "10.0.0.7:5,connections=1")
	f.resolve(t, "a.example.", record{"a.example.", 60, "10.2.0.1"})
	many := func(to string, data []byte) (opened, sent int) {
		var all, bytes atomic.Int64
		var wait sync.WaitGroup
		for range 100 {
			wait.Go(func() {
				flow, err := f.Open(Socket{Protocol: "udp", To: netip.MustParseAddrPort(to)})
				if err != nil {
					return
				}
				all.Add(1)
				pass := func(b []byte) error {
					bytes.Add(int64(len(b)))
					return nil
				}
				if len(data) > 0 && (!flow.Watched() || flow.Datagram(data, pass) == nil && flow.Sent(data) == nil) {
					bytes.Add(int64(len(data)))
				}
			})
		}
		wait.Wait()
		return int(all.Load()), int(bytes.Load())
	}
	if n, _ := many("10.1.0.1:80", nil); n != 20 {
		t.Errorf("%d connections, want 20", n)
	}
	if _, n := many("10.2.0.1:443", make([]byte, 30)); n > 1000 || n < 900 {
		t.Errorf("%d bytes, want 1000 at most", n)
	}
	local := Socket{Protocol: "tcp", To: netip.MustParseAddrPort("10.0.0.7:5")}
	if _, err := f.Open(local); err != nil || f.Connected(local, netip.MustParseAddrPort("10.0.0.8:9")) != nil {
		t.Errorf("the last connection: %v", err)
	}
	for to, want := range map[string]string{
		"10.1.0.2:80":   "refused tcp 10.1.0.2:80: the rule 10.1.0.0/16:80,connections=20 permits no more connections",
		"10.2.0.1:9":    "refused tcp 10.2.0.1:9: the rule a.example,sent=1000 permits no more bytes",
		"10.0.0.7:5":    "refused tcp 10.0.0.7:5: the rule 10.0.0.7:5,connections=1 permits no more connections",
		"10.1.0.2:8080": "refused tcp 10.1.0.2:8080: 10.1.0.0/16 is only allowed on port 80",
	} {
		if report := f.Refuse(Socket{Protocol: "tcp", To: netip.MustParseAddrPort(to)}); report == nil || report().Error() != want {
			t.Errorf("%s: want %s", to, want)
		}
	}
	more, _ := config.ParseAllow("10.1.0.0/16")
	if err := f.Change([]config.Allow{more}, nil); err != nil || !f.permits("10.1.0.2:80") {
		t.Errorf("another rule: %v", err)
	}
	if p := f.Part(0); p.Rules[0].Connections != 20 || p.Rules[1].Sent == 0 {
		t.Errorf("%+v", p)
	}
}

// TestBounds checks that neither a program nor a name server can fill the memory,
// and that each destination is reported once.
func TestBounds(t *testing.T) {
	f := fixed(t, "*.example")
	for i := range 200 {
		for range 2 {
			f.permits(fmt.Sprintf("10.5.0.%d:80", i))
			f.Query(query(fmt.Sprintf("n%d.org.", i), dnsmessage.TypeA), Socket{})
		}
	}
	for i := range maxGrants + 100 {
		f.grant(netip.AddrFrom4([4]byte{10, 6, byte(i >> 8), byte(i)}), "a.example", time.Duration(i)*time.Second)
	}
	if n := f.count(); n > maxGrants {
		t.Errorf("%d grants", n)
	}
	for i := range 2 * maxGrants {
		f.grant(netip.MustParseAddr("10.7.0.1"), fmt.Sprintf("n%d.example", i), time.Hour)
	}
	if n := f.count(); n > maxGrants || len(f.grants[netip.MustParseAddr("10.7.0.1")]) != maxNames {
		t.Errorf("%d grants", n)
	}
	a := f.Account()
	if len(a.Names) != 50 || len(a.Destinations) != 50 || a.Refused.Queries != 400 || a.Refused.Connections != 400 {
		t.Errorf("%d names, %d destinations, %+v", len(a.Names), len(a.Destinations), a.Refused)
	}
	f.Close()
	if len(f.lines) != maxLines+3 || !strings.Contains(f.lines[maxLines], "only counted") || !strings.HasPrefix(f.lines[maxLines+1], "allowed: 0 queries") {
		t.Errorf("%d lines: %q", len(f.lines), f.lines)
	}
}
