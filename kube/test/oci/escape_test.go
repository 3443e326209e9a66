// SPDX-License-Identifier: Apache-2.0

package oci

import (
	_ "embed"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

//go:embed testdata/escape.sh
var escape string

//go:embed testdata/witness.py
var witness string

// TestOCIEscape makes the attempts of csrc/tests/escape in containers of podman. They must
// not reach the host's kernel. `podman exec` starts the program, so it has a seccomp
// listener of its own.
func TestOCIEscape(t *testing.T) {
	kit.Need(t, "python3", "iptables", "nsenter", "setcap", kit.Bin("lklrun-oci"))
	for name, flags := range map[string]string{
		"plain": "", "user": "--user 1000", "admin": "--cap-add NET_ADMIN --cap-add NET_RAW", "privileged": "--privileged",
	} {
		t.Run(name, func(t *testing.T) {
			podman := kit.Podman{Host: kit.NewNetns(t, "host"), Bin: kit.PublicBin(t), Conf: kit.PodmanConf + kit.PodmanUsr, Runtime: "lklrun-oci"}
			dir := kit.Dir(t)
			kit.Must(t, os.Chmod(dir, 0o777))
			kit.WriteFile(t, filepath.Join(dir, "witness.py"), witness)
			for copied, from := range map[string]string{"escape": "escape", "static": "escape-static", "setuid": "escape-static", "filecap": "escape-static"} {
				kit.Host.Run(t, "install", "-m", "755", filepath.Join(kit.Root(), "build/csrc/tests", from), filepath.Join(dir, copied))
			}
			kit.Host.Run(t, "chmod", "4755", filepath.Join(dir, "setuid"))
			kit.Host.Run(t, "setcap", "cap_sys_admin,cap_net_raw,cap_net_admin+ep", filepath.Join(dir, "filecap"))
			r := kit.Run(t, limit, podman.Command(t, "set -- "+dir+" "+flags+"\n"+escape))
			outcomes, without, ok := strings.Cut(r.Stdout, "without a stack:\n")
			if r.Status != 0 || !ok || strings.Count(without, "heard") < 3 || !strings.Contains(outcomes, "memory intact") {
				t.Fatalf("the script: %v", r)
			}
			lines := kit.Lines(outcomes)
			for _, want := range []string{"inet-stream ENETUNREACH", "bare-inet-dgram ENETUNREACH", "setns-name EPERM", "receive-inet withheld"} {
				if !slices.Contains(lines, want) {
					t.Errorf("no line %q", want)
				}
			}
			for _, line := range lines {
				name, outcome, _ := strings.Cut(line, " ")
				if name == "heard" || outcome == "silent" || outcome == "unknown" || strings.HasPrefix(outcome, "reached") && !slices.Contains(permitted, name) {
					t.Errorf("an attempt: %s", line)
				}
			}
			if t.Failed() {
				t.Log(r)
			}
		})
	}
}

// permitted are the attempts that may succeed: the files of a container in /proc and /sys
// are those of the host's kernel, in the container's network namespace.
var permitted = []string{"proc-net", "proc-self-net", "sys-class-net", "mount-proc", "mount-sysfs"}
