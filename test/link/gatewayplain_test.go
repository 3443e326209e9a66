// SPDX-License-Identifier: Apache-2.0

package link

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// TestGatewayPlain checks that the user-mode gateway carries the same data over shared memory
// and over a socket, which it uses if the host does not allow a file of the memory's size.
func TestGatewayPlain(t *testing.T) {
	t.Parallel()
	kit.Need(t, "nginx", "curl", "prlimit")
	host := kit.NewNetns(t, "host")
	dir := kit.Dir(t)
	content := bytes.Repeat([]byte("0123456789abcdef-"), 4<<20/17)
	kit.Must(t, os.WriteFile(filepath.Join(dir, "file"), content, 0o644))
	host.Nginx(t, kit.Nginx{Root: dir})
	const message = "the gateway uses a socket instead of shared memory"
	for limit, plain := range map[string]bool{"unlimited": false, "1000000": true} {
		r := kit.Run(t, kit.Limit, host.Command("prlimit", "--fsize="+limit, kit.Bin("lklrun"), "-v", "--",
			"curl", "-sS", "http://192.168.127.254/file"))
		if r.Status != 0 || r.Stdout != string(content) {
			t.Errorf("file size %s: status %d, %d bytes of %d\n%s", limit, r.Status, len(r.Stdout), len(content), r.Stderr)
		}
		if strings.Contains(r.Stderr, message) != plain {
			t.Errorf("file size %s: standard error:\n%s", limit, r.Stderr)
		}
	}
}
