// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// TestRequire checks that --require turns the account of a run into its exit status:
// 123 if the program ended with 0, but not all of its traffic used the required
// network.
func TestRequire(t *testing.T) {
	s := kit.NewSite(t)
	kit.Need(t, "mptcpize")
	s.Web(kit.Nginx{MPTCP: true})
	s.Web(kit.Nginx{Port: 81})
	const mptcp, plain = "curl -sSo /dev/null " + kit.ServerURL + "/hello", "curl -sSo /dev/null " + kit.ServerURL + ":81/hello"
	// Python's sockets block; curl's do not.
	python := func(port int) string {
		return fmt.Sprintf(`/usr/bin/python3 -c 'import socket; s = socket.create_connection(("%s", %d)); s.sendall(b"GET / HTTP/1.0\r\n\r\n"); s.recv(9)'`, kit.ServerAddr, port)
	}
	for _, tt := range []struct {
		require, command string
		status           int
		says             string
	}{
		{"stack", plain, 0, ""},
		{"stack", mptcp, 0, ""},
		{"stack", "true", 123, "the program used no socket of the stack"},
		{"stack", plain + "; exit 7", 7, ""},
		{"stack", plain + "; kill -9 $$", 137, ""},
		{"stack", plain + `; /usr/bin/python3 -c 'import socket; socket.socket(socket.AF_BLUETOOTH)' 2>/dev/null; true`, 123, "1 socket of a type that the stack does not support"},
		{"mptcp", mptcp, 0, ""},
		{"mptcp", python(80), 0, ""},
		{"mptcp", mptcp + " & " + mptcp + " & " + mptcp + "; wait", 0, ""},
		{"mptcp", "true", 123, "the program used no socket of the stack"},
		{"mptcp", plain, 123, "MPTCP fell back to TCP (MPCapableFallbackSYNACK 1)"},
		{"mptcp", python(81), 123, "MPTCP fell back to TCP (MPCapableFallbackSYNACK 1)"},
		{"mptcp", mptcp + "; " + plain, 123, "MPTCP fell back to TCP (MPCapableFallbackSYNACK 1)"},
		{"mptcp", plain + "; exit 7", 7, ""},
		// No server listens on this port. A failed attempt does not count as a
		// connection.
		{"mptcp", "curl -s " + kit.ServerURL + ":82; true", 123, "there was no MPTCP connection"},
		{"mptcp", "curl -s " + kit.ServerURL + ":82; " + mptcp, 0, ""},
	} {
		r := kit.Run(t, kit.Limit, kit.Lklrun("--require", tt.require, "--if", s.TapIf(), "--", "sh", "-c", tt.command))
		want := ""
		if tt.says != "" {
			want = "lklrun: --require " + tt.require + ": " + tt.says + "\n"
		}
		if kit.ShellStatus(r) != tt.status || r.Stderr != want {
			t.Errorf("--require %s, %s: %v; want status %d and %q", tt.require, tt.command, r, tt.status, want)
		}
	}
}

// TestRequireServer is like TestRequire, but for a server, whose accepted connections
// count.
func TestRequireServer(t *testing.T) {
	s := kit.NewSite(t)
	kit.Need(t, "mptcpize")
	const server = `import socket
l = socket.create_server(("", 80))
print("listening", flush=True)
c = l.accept()[0]
c.recv(999); c.sendall(b"HTTP/1.0 200 OK\r\n\r\n"); c.close()`
	for client, want := range map[string]string{
		"mptcpize run curl": "",
		"curl":              "lklrun: --require mptcp: 1 connection by TCP\n",
	} {
		p := kit.Start(t, kit.Lklrun("--require", "mptcp", "--if", s.TapIf(), "--", "/usr/bin/python3", "-c", server))
		kit.WaitFor(t, "the server", kit.Limit, func() bool { out, _ := p.Output(); return out != "" })
		args := append(strings.Fields(client), "-sS", "http://"+kit.StackAddr)
		kit.OK(t, kit.Limit, exec.Command(args[0], args[1:]...))
		r := p.Wait(kit.Limit)
		if (r.Status == 0) != (want == "") || r.Status != 0 && r.Status != 123 || r.Stderr != want {
			t.Errorf("%s: %v; want %q", client, r, want)
		}
	}
}
