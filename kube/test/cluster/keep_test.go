// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

// enter runs a command on the node. A file that only this node has tells its first process
// from those of other nodes.
const enter = `#!/bin/sh
for p in /proc/[0-9]*; do
	[ ! -e "$p/root/run/node/KEPT" ] || [ "$(cat "$p/comm")" != sleep ] || exec nsenter -t "${p#/proc/}" -m -p -n env PATH="PATHS" KUBECONFIG=` + admin + ` "$@"
done
echo "the node has ended" >&2
exit 1
`

// TestKeep starts a cluster for experiments, and writes a script to the file that
// LKLRUN_TEST_KEEP names. The script runs a command on the node. The cluster ends when
// somebody removes the file.
func TestKeep(t *testing.T) {
	path := os.Getenv("LKLRUN_TEST_KEEP")
	if path == "" {
		t.Skip("LKLRUN_TEST_KEEP names no file")
	}
	c := newCluster(t)
	kept := filepath.Base(path) + time.Now().Format(".150405.000")
	c.Run("touch", files+kept)
	paths := strings.TrimSpace(c.Run("sh", "-c", "echo $PATH"))
	text := strings.NewReplacer("KEPT", kept, "PATHS", paths).Replace(enter)
	kit.Must(t, os.WriteFile(path+".new", []byte(text), 0o755), os.Rename(path+".new", path))
	kit.WaitFor(t, "the removal of "+path, 24*time.Hour, func() bool {
		_, err := os.Stat(path)
		return err != nil
	})
}
