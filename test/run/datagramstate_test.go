// SPDX-License-Identifier: Apache-2.0

package run

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

//go:embed testdata/datagram_state.py
var datagramState string

// TestFinding3DatagramState checks that datagrams leave with the peer and the options that
// were set when the program sent them, if the stack cannot send them before the program
// changes these: the server answers ARP and neighbour discovery only afterwards.
func TestFinding3DatagramState(t *testing.T) {
	kit.Need(t, "/usr/bin/python3", "ip")
	s := kit.NewSite(t)
	port := 7100
	for _, mode := range []string{"connect", "unspec", "ttl", "tos", "sendto", "close"} {
		for _, way := range []string{"block", "poll"} {
			engine, address := "supervise", kit.ServerAddr
			if way == "poll" {
				address = kit.ServerAddr6
			}
			if mode == "connect" && way == "block" {
				engine = "trace"
			}
			t.Run(mode+" "+way+" "+engine, func(t *testing.T) {
				port += 2
				server := kit.Start(t, s.Server.Command("/usr/bin/python3", "-c", datagramState, "serve", address, strconv.Itoa(port)))
				kit.WaitFor(t, "the server", kit.Limit, func() bool { out, _ := server.Output(); return out == "ready\n" || !server.Running() })
				s.Server.Run(t, "ip", "link", "set", "s0", "arp", "off")
				cmd := kit.Lklrun("--name", kit.NewName(), "-q", "--engine", engine, "--if", s.TapIf(), "--",
					"/usr/bin/python3", "-c", datagramState, "send", mode, way, address, strconv.Itoa(port))
				in, err := cmd.StdinPipe()
				if err != nil {
					t.Fatal(err)
				}
				p := kit.Start(t, cmd)
				said := func(text string) {
					t.Helper()
					kit.WaitFor(t, text, kit.Limit, func() bool { out, _ := p.Output(); return strings.Contains(out, text) || !p.Running() })
				}
				said("sent ")
				sent := 0
				out, _ := p.Output()
				if _, err := fmt.Sscanf(out, "sent %d", &sent); err != nil || sent == 0 {
					t.Fatalf("%q: %v", out, err)
				}
				if way == "poll" && mode != "sendto" {
					said("done\n")
				}
				s.Server.Run(t, "ip", "link", "set", "s0", "arp", "on")
				said("done\n")
				early, last := 0, 1
				if mode == "close" {
					last = 0
				}
				kit.WaitFor(t, "all datagrams", kit.Limit, func() bool {
					out, _ := server.Output()
					early = strings.Count(out, "got early")
					return early == sent && strings.Count(out, "got la") >= last || !server.Running()
				})
				kit.Must(t, in.Close())
				if r := p.Wait(kit.Limit); r.Status != 0 {
					t.Errorf("the program: %v", r)
				}
				out, _ = server.Output()
				wrong, overtaken := 0, false
				for _, line := range kit.Lines(out)[1:] {
					is, sent, _ := strings.Cut(line, " got ")
					name, want, _ := strings.Cut(sent, " ")
					if is != want {
						wrong++
					}
					if name == "early" && overtaken {
						wrong++
					}
					overtaken = overtaken || name == "last"
				}
				if wrong > 0 {
					t.Errorf("%d of %d datagrams had another peer, option or place:\n%.300s", wrong, early, out)
				}
			})
		}
	}
}
