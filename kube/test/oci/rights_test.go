// SPDX-License-Identifier: Apache-2.0

package oci

import (
	_ "embed"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lklrun/lklrun/test/kit"
)

//go:embed testdata/rights.py
var rights string

// TestOCIRights checks that the processes of a container may do with their stack what they
// may do without it, on the host's kernel, and no more.
func TestOCIRights(t *testing.T) {
	kit.Need(t, "python3", "iptables", kit.Bin("lklrun-oci"))
	for _, c := range []struct {
		name, flags string
		addresses   string // that the attempts have added
		only        map[string]string
	}{
		{"default", "", "", denied},
		{"user", "--user 1000", "", denied},
		{"user namespaces", "--security-opt seccomp=unconfined", "", denied},
		{"without raw", "--cap-drop NET_RAW", "", denied},
		{"admin", "--cap-add NET_ADMIN --security-opt seccomp=unconfined", "2 3 8", map[string]string{
			"address by ioctl of a unix socket": "permitted",
			"address by write":                  "EPERM",
			"address by send":                   "EPERM",
			"address by an inherited write":     "EPERM",
		}},
		{"privileged", "--privileged", "2 3 8", map[string]string{"address by write": "EPERM", "address by an inherited write": "EPERM"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			run := func(note, args string) map[string]string {
				podman := kit.Podman{Host: kit.NewNetns(t, "host"), Bin: kit.PublicBin(t), Conf: kit.PodmanConf + kit.PodmanUsr, Runtime: "lklrun-oci"}
				dir := kit.Dir(t)
				kit.WriteFile(t, filepath.Join(dir, "rights.py"), rights)
				script := "podman run --rm -v " + dir + ":/mnt:ro -v " + kit.NewStallFS(t).Dir + ":/slow:ro " + c.flags + note +
					" localhost/image python3 /mnt/rights.py " + args
				return results(t, kit.OK(t, limit, podman.Command(t, script)))
			}
			host, stack := run("", ""), run(" --annotation lklrun.dev/stack=bbr", "stack")
			for what, want := range c.only {
				if stack[what] != want {
					t.Errorf("%s: %s, expected %s", what, stack[what], want)
				}
			}
			if stack["addresses"] != c.addresses {
				t.Errorf("the attempts have added the addresses %q, expected %q", stack["addresses"], c.addresses)
			}
			for what := range stack {
				if _, there := host[what]; !there || what == "addresses" {
					delete(stack, what)
				}
			}
			delete(host, "addresses")
			if diff := cmp.Diff(host, stack); diff != "" {
				t.Errorf("the stack (+) permits other attempts than the host's kernel (-):\n%s", diff)
			}
		})
	}
}

// denied are the results of attempts that the host's kernel does not know.
var denied = map[string]string{
	"address by ioctl of a unix socket": "EPERM",
	"address by write":                  "EPERM",
	"address by send":                   "EPERM",
	"address by an inherited write":     "EPERM",
}

// results parses the output of rights.py.
func results(t *testing.T, output string) map[string]string {
	all := map[string]string{}
	for _, line := range kit.Lines(output) {
		what, result, ok := strings.Cut(line, ":")
		if !ok || strings.Contains(result, "255") {
			t.Fatalf("a result is missing, or there is no user namespace: %s", output)
		}
		all[what] = strings.TrimSpace(result)
	}
	return all
}
