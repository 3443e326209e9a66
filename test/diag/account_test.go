// SPDX-License-Identifier: Apache-2.0

package diag

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/internal/diag/account"
	"github.com/lklrun/lklrun/test/kit"
)

// accountOf returns the account of an instance, as lklctl reports it.
func accountOf(t *testing.T, name string) *account.Account {
	t.Helper()
	var a account.Account
	text := kit.Lklctl(t, "account", "-n", name, "-o", "json")
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		t.Fatalf("account -o json: %v\n%s", err, text)
	}
	return &a
}

// TestAccount checks that the account lists each process's use of each stack: sockets,
// bytes, peers and the outcome of MPTCP.
func TestAccount(t *testing.T) {
	s := kit.NewSite(t)
	kit.Need(t, "mptcpize")
	s.Web(kit.Nginx{MPTCP: true})
	s.Web(kit.Nginx{Port: 81})
	port := kit.Host.EchoTCP(t, "127.0.0.1:0")
	s.Server.EchoUDP(t, kit.ServerAddr+":7")
	k := s.Talk("-v", "--if", s.TapIf(), "--host-net", fmt.Sprintf("127.0.0.1:%d", port))
	k.Say("0") // wait until the target runs
	if a := accountOf(t, k.Name); len(a.Processes) != 0 {
		t.Errorf("before there is anything: %+v", a)
	}
	k.Connect("mptcp", kit.ServerAddr, 80)
	k.Connect("plain", kit.ServerAddr, 81)
	k.Connect("host", "127.0.0.1", port)
	k.Say(`keep.__setitem__("udp", socket.socket(socket.AF_INET, socket.SOCK_DGRAM))`)
	k.Say(`keep["udp"].connect((%q, 7))`, kit.ServerAddr)
	k.Say(`keep["udp"].send(b"x" * 100), keep["udp"].recv(200)`)
	k.Say(`keep["mptcp"].sendall(b"GET /hello HTTP/1.0\r\n\r\n"), keep["mptcp"].recv(4)`)
	k.Say(`__import__("os").system("curl -sSo /dev/null %s/hello; sleep 0")`, kit.ServerURL)

	var live *account.Account
	kit.WaitFor(t, "the curl's end", kit.Limit, func() bool {
		live = accountOf(t, k.Name)
		return len(live.Processes) == 2 && live.Processes[1].Ended
	})
	p, curl := live.Processes[0], live.Processes[1]
	if p.Command != "python3" || p.Stack != 3 || p.Host != 1 || p.MPTCP != 1 || p.FallbackPeer != 1 || p.TCP != 0 || p.Sent != 123 || p.Received < 104 {
		t.Errorf("python3: %+v", p)
	}
	peers := map[string]int64{}
	for _, q := range p.Peers {
		peers[q.Proto+" "+q.Addr] = q.Bytes
	}
	if len(peers) != 3 || peers["udp "+kit.ServerAddr+":7"] != 200 || peers["tcp "+kit.ServerAddr+":80"] < 25 || peers["tcp "+kit.ServerAddr+":81"] != 0 {
		t.Errorf("its peers: %v", peers)
	}
	if curl.Command != "curl" || curl.Stack != 1 || curl.MPTCP != 1 || curl.Received < 100 {
		t.Errorf("curl: %+v", curl)
	}
	if want := []account.Place{{Addr: fmt.Sprintf("127.0.0.1:%d", port), Sockets: 1}}; len(live.Hosted) != 1 || live.Hosted[0] != want[0] {
		t.Errorf("by the host: %+v, want %+v", live.Hosted, want)
	}
	table := kit.Lklctl(t, "account")
	if words := strings.Join(strings.Fields(table), " "); !strings.Contains(words, "1 MPTCP, 1 TCP (peer without MPTCP)") || !strings.Contains(words, " with udp "+kit.ServerAddr+":7 ") || !strings.Contains(words, "ended ") {
		t.Errorf("the table:\n%s", table)
	}
	r := k.End()
	for _, want := range []string{"python3(", "made 3 sockets on the stack: ", "connections: 1 MPTCP, 1 TCP (peer without MPTCP)", "had 1 socket on the host's stack", "curl("} {
		if !strings.Contains(r.Stderr, want) {
			t.Errorf("-v has no %q:\n%s", want, r.Stderr)
		}
	}
}

// TestAccountServer checks that the account of a server lists its peers by address and
// separates MPTCP from plain TCP.
func TestAccountServer(t *testing.T) {
	s := kit.NewSite(t)
	kit.Need(t, "mptcpize")
	k := s.Talk("--if", s.TapIf())
	k.Say(`keep.__setitem__("l", socket.create_server(("", 8080)))`)
	for _, how := range [][]string{{"mptcpize", "run"}, nil} {
		c := kit.Start(t, s.Server.Command(append(how, "/usr/bin/python3", "-c", fmt.Sprintf(
			`import socket; s = socket.create_connection((%q, 8080), 20); s.sendall(b"12345"); s.recv(1)`, kit.StackAddr))...))
		if got := k.Say(`keep.__setitem__("a", keep["l"].accept()[0]) or keep["a"].recv(5, socket.MSG_WAITALL)`); got != "b'12345'" {
			t.Errorf("from the client: %s", got)
		}
		k.Say(`keep.pop("a").close()`)
		c.Wait(kit.Limit)
	}
	var p account.Process
	kit.WaitFor(t, "both", kit.Limit, func() bool {
		p = accountOf(t, k.Name).Processes[0]
		return p.Received == 10
	})
	if p.Stack != 3 || p.MPTCP != 1 || p.FallbackPeer != 1 || len(p.Peers) != 1 || p.Peers[0] != (account.Peer{Proto: "tcp", Addr: kit.ServerAddr, Bytes: 10}) {
		t.Errorf("%+v", p)
	}
	k.End()
}

// TestAccountMany checks that the account lists a few short-lived processes one by one,
// and sums up the others.
func TestAccountMany(t *testing.T) {
	s := kit.NewSite(t)
	s.Server.EchoUDP(t, kit.ServerAddr+":7")
	const many = 300
	r := kit.Run(t, kit.Limit, kit.Lklrun("--name", kit.NewName(), "-v", "--if", s.TapIf(), "--", "/usr/bin/python3", "-c", fmt.Sprintf(`
import os, socket
for i in range(%d):
    pid = os.fork()
    if not pid:
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b"12345", (%q, 7)); s.recv(9)
        os._exit(0)
    os.waitpid(pid, 0)`, many, kit.ServerAddr)))
	said := 0
	for _, l := range kit.Lines(r.Stderr) {
		if strings.Contains(l, " made ") {
			said++
		}
	}
	if r.Status != 0 || said < 200 || said > 260 || !strings.Contains(r.Stderr, "earlier processes made ") || !strings.Contains(r.Stderr, fmt.Sprintf("total: %d sockets, ", many)) {
		t.Errorf("%d processes told of: %v", said, r)
	}
}
