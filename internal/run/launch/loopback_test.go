// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"net/netip"
	"testing"

	"github.com/lklrun/lklrun/internal/link"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/pkg/config"
)

func TestLoopbackHint(t *testing.T) {
	user := link.Link{Name: "eth1", HostLoopback: netip.MustParseAddr("192.168.127.254")}
	listener := func(at string) sockdiag.Socket {
		return sockdiag.Socket{Proto: sockdiag.TCP, State: sockdiag.Listen, Local: netip.MustParseAddrPort(at)}
	}
	only6 := listener("[::]:80")
	only6.V6Only = true
	open := listener("127.0.0.1:80")
	open.State = sockdiag.Established
	udp := listener("127.0.0.1:80")
	udp.Proto = "udp"
	const (
		four = "nothing listens on the stack's own 127.0.0.1:80; to reach the host's server there, "
		six  = "nothing listens on the stack's own [::1]:80; to reach the host's server there, "
		at   = "connect to 192.168.127.254:80"
		net4 = "use --host-net 127.0.0.1:80"
		net6 = "use --host-net [::1]:80"
		pre  = config.EnginePreload
	)
	for name, c := range map[string]struct {
		to      string
		host    sockdiag.Socket
		gateway bool
		engine  string
		want    string
	}{
		"the usual":           {"127.0.0.1:80", listener("127.0.0.1:80"), true, "", four + at + " or " + net4},
		"no gateway":          {"127.0.0.1:80", listener("127.0.0.1:80"), false, "", four + net4},
		"preload":             {"127.0.0.1:80", listener("127.0.0.1:80"), true, pre, four + at},
		"preload, no gateway": {"127.0.0.1:80", listener("127.0.0.1:80"), false, pre, ""},
		"all addresses":       {"127.0.0.1:80", listener("0.0.0.0:80"), true, "", four + at + " or " + net4},
		"both families":       {"127.0.0.1:80", listener("[::]:80"), true, "", four + at + " or " + net4},
		"both, to ::1":        {"[::1]:80", listener("[::]:80"), true, "", six + at + " or " + net6},
		"only IPv6":           {"127.0.0.1:80", only6, true, "", ""},
		"only IPv6, to ::1":   {"[::1]:80", only6, true, "", six + net6},
		"::1":                 {"[::1]:80", listener("[::1]:80"), true, "", six + net6},
		"::1, preload":        {"[::1]:80", listener("[::1]:80"), true, pre, ""},
		"IPv4, to ::1":        {"[::1]:80", listener("127.0.0.1:80"), true, "", ""},
		"127.0.1.1":           {"127.0.1.1:80", listener("127.0.1.1:80"), true, "", "nothing listens on the stack's own 127.0.1.1:80; to reach the host's server there, use --host-net 127.0.1.1:80"},
		"another address":     {"127.0.0.1:80", listener("192.0.2.1:80"), true, "", ""},
		"another port":        {"127.0.0.1:80", listener("127.0.0.1:81"), true, "", ""},
		"a connection":        {"127.0.0.1:80", open, true, "", ""},
		"UDP":                 {"127.0.0.1:80", udp, true, "", ""},
	} {
		links := []link.Link{{Name: "eth0"}}
		if c.gateway {
			links = append(links, user)
		}
		if got := loopbackHint(netip.MustParseAddrPort(c.to), []sockdiag.Socket{c.host}, links, c.engine); got != c.want {
			t.Errorf("%s: %q\nwant %q", name, got, c.want)
		}
	}
}
