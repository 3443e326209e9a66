// SPDX-License-Identifier: Apache-2.0

package programs

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

//go:embed testdata/browser_page.html
var browserPage string

// TestProgBrowser runs a browser. It has processes of several kinds, each with its own
// namespaces and filter, and uses HTTP/2 with TLS. A browser also watches the addresses,
// and aborts its downloads when a new address appears. So the stack must have all of its
// addresses before the browser starts.
func TestProgBrowser(t *testing.T) {
	kit.Need(t, "/usr/bin/chromium")
	s := kit.NewSite(t)
	dir, home, bin := kit.Dir(t), kit.Dir(t), kit.PublicBin(t)
	if err := os.Chown(home, kit.Nobody, kit.Nobody); err != nil {
		t.Fatal(err)
	}
	nginx := webServer(t)(dir)
	kit.WriteFile(t, dir+"/www/page.html", browserPage)
	kit.Start(t, s.Server.Command(nginx...))
	kit.WaitFor(t, "nginx", kit.Limit, func() bool { return s.Server.Listening(t, "t", 443) })
	want := fmt.Sprintf("<body>%s %d</body>", sum(t, dir+"/www/file"), 50*4096)
	for _, flags := range [][]string{
		{"--stack", "mptcp", "--if", s.TapIf(), "--capture", dir + "/tls.pcapng", "--tls-keys"},
		{"--stack", "vanilla", "--if", s.TapIf()},
		{"--stack", "vanilla", "--if", "user"},
	} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			run := func(args ...string) string {
				cmd := exec.Command(bin+"/lklrun", append(append([]string{"-q", "--user", "nobody"}, flags...), args...)...)
				cmd.Env = append(os.Environ(), "TMPDIR="+home)
				return kit.OK(t, 4*time.Minute, cmd)
			}
			if got := run("--", "ip", "-6", "-o", "addr", "show", "tentative"); got != "" {
				t.Errorf("addresses that cannot be used yet:\n%s", got)
			}
			got := run("--", "/usr/bin/env", "HOME="+home, "/usr/bin/chromium", "--headless", "--disable-gpu", "--disable-quic", "--no-first-run",
				"--disable-background-networking", "--disable-component-update", "--disable-sync", "--ignore-certificate-errors",
				"--user-data-dir="+home+"/"+strings.ReplaceAll(t.Name(), "/", "_"), "--virtual-time-budget=10000", "--dump-dom", "https://"+kit.ServerAddr+"/page.html")
			if !strings.Contains(got, want) {
				t.Errorf("the page is\n%s\nnot\n%s", got, want)
			}
			if slices.Contains(flags, "--tls-keys") && !slices.ContainsFunc(kit.PacketFields(t, false, dir+"/tls.pcapng", "http2.headers.path"), func(f []string) bool { return strings.Contains(f[0], "/page.html") }) {
				t.Error("tshark does not decrypt the requests")
			}
		})
	}
}
