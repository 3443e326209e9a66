// SPDX-License-Identifier: Apache-2.0

package run

import (
	_ "embed"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

//go:embed testdata/reader.py
var reader string

//go:embed testdata/sender.py
var sender string

// TestLinger checks that data that a program sent before it ended is delivered, even to a
// slow reader. The delivery has a time limit, and the user can interrupt it.
func TestLinger(t *testing.T) {
	t.Parallel()
	kit.Need(t, "ip", "/usr/bin/python3", kit.Bin("lklrun"), kit.Bin("lklhost"))
	for _, flags := range [][]string{
		{"--stack", "mptcp"},
		{"--stack", "vanilla"},
		{"--stack", "mptcp", "--engine", "preload"},
		{"--stack", "vanilla", "--engine", "preload"},
	} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			t.Parallel()
			host, server := kit.NewNetns(t, "linger"), kit.NewNetns(t, "reader")
			kit.Veth(t, host, "v0", server, "s0")
			host.Tap(t, "tap0")
			host.Bridge(t, "br0", "v0", "tap0")
			server.Addr(t, "s0", kit.ServerAddr+"/24")
			serve := func(t *testing.T, pause string) *kit.Proc {
				p := kit.Start(t, server.Command("/usr/bin/python3", "-c", reader, kit.ServerAddr, pause))
				kit.WaitFor(t, "the server", kit.Limit, func() bool { out, _ := p.Output(); return out == "ready\n" })
				return p
			}
			// ended starts a run and returns when its target has ended.
			ended := func(t *testing.T, size int) (*kit.Proc, string) {
				p := kit.Start(t, host.Command(slices.Concat([]string{
					kit.Bin("lklrun"), "-q", "--name", kit.NewName(), "--if", "tap:tap0,ip=" + kit.StackAddr + "/24",
				}, flags, []string{"--", "/usr/bin/python3", "-c", sender, kit.ServerAddr, strconv.Itoa(size)})...))
				kit.WaitFor(t, "the sender's end", kit.Limit, func() bool { out, _ := p.Output(); return strings.HasSuffix(out, "\n") || !p.Running() })
				out, _ := p.Output()
				return p, strings.TrimSpace(out)
			}
			t.Run("slow reader", func(t *testing.T) {
				server := serve(t, "0.8")
				p, sent := ended(t, 1<<20)
				began := time.Now()
				r := p.Wait(3 * kit.Limit)
				took := time.Since(began)
				if r.Status != 6 || r.Stderr != "" {
					t.Errorf("lklrun: %v", r)
				}
				out := server.Wait(kit.Limit).Stdout
				if sent == "" || !strings.Contains(out, "end "+sent) {
					t.Errorf("sent %s, and the server says %s", sent, out)
				}
				if took < 2*time.Second {
					t.Errorf("all was delivered after %v: no slow reader", took)
				}
				t.Logf("%s bytes, lklrun ended %v after the sender", strings.Fields(sent)[0], took.Round(time.Millisecond))
			})
			// The stack holds all data of the smaller size when the sender ends.
			for _, size := range []int{192 << 10, 1536 << 10} {
				t.Run("stopped reader, "+strconv.Itoa(size), func(t *testing.T) {
					server := serve(t, "100000")
					p, _ := ended(t, size)
					if r := p.Wait(kit.Limit); r.Status != 6 || len(kit.Lines(r.Stderr)) != 1 || !strings.Contains(r.Stderr, "not fully delivered") {
						t.Errorf("lklrun: %v", r)
					}
					hearsReset(t, server)
				})
			}
			t.Run("killed reader", func(t *testing.T) {
				server := serve(t, "100000")
				p, _ := ended(t, 1536<<10)
				server.Signal(unix.SIGKILL)
				if r := p.Wait(kit.Limit); r.Status != 6 {
					t.Errorf("lklrun: %v", r)
				}
				server.Wait(kit.Limit)
			})
			t.Run("interrupted", func(t *testing.T) {
				server := serve(t, "100000")
				p, _ := ended(t, 1536<<10)
				began := time.Now()
				// The first SIGINT may still reach the sender, which is about to end.
				// Even if the user sends more signals during the end of the run, the
				// reset must be sent.
				kit.WaitFor(t, "lklrun's end", kit.Limit, func() bool {
					for range 20 {
						if p.Running() {
							_ = unix.Kill(p.Pid(), unix.SIGINT) // it may have ended just now
						}
					}
					return !p.Running()
				})
				if r := p.Wait(kit.Limit); r.Status != 6 || r.Stderr != "" || time.Since(began) > 10*time.Second {
					t.Errorf("lklrun, %v after SIGINT: %v", time.Since(began), r)
				}
				hearsReset(t, server)
			})
		})
	}
}

// hearsReset checks that a reader that expects more data gets a reset and does not wait
// for ever.
func hearsReset(t *testing.T, reader *kit.Proc) {
	t.Helper()
	reader.Signal(unix.SIGUSR1)
	if out := reader.Wait(kit.Limit).Stdout; !strings.Contains(out, "Connection reset by peer\nend ") {
		t.Errorf("after the run the server says %s", out)
	}
}
