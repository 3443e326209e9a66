// SPDX-License-Identifier: Apache-2.0

//go:build androidroot

package run

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// androidEnv names a directory with the root of an Android system for this CPU. It contains
// system, and in apex/com.android.runtime the loader and the C library.
const androidEnv = "LKLRUN_TEST_ANDROID"

// TestAndroidRoot runs programs of a real Android system, whose C library passes each socket
// to netd and has no /etc/resolv.conf.
func TestAndroidRoot(t *testing.T) {
	root := os.Getenv(androidEnv)
	if root == "" {
		t.Skipf("%s names no root of an Android system", androidEnv)
	}
	s := kit.NewSite(t)
	port := s.Server.EchoTCP(t, kit.ServerAddr+":0")
	s.Server.Dnsmasq(t, map[string]string{"www.test": kit.ServerAddr})
	kit.OwnEtc(t)
	kit.Must(t, os.RemoveAll("/etc/resolv.conf"))
	n := newNetd(t)
	for _, dir := range []string{"dev", "proc"} {
		kit.Must(t, os.MkdirAll(filepath.Join(root, dir), 0o755), unix.Mount("/"+dir, filepath.Join(root, dir), "", unix.MS_BIND|unix.MS_REC, ""))
		t.Cleanup(func() { kit.Must(t, unix.Unmount(filepath.Join(root, dir), unix.MNT_DETACH)) })
	}
	const nc = "(echo over the stack; sleep 1) | toybox nc %s %d"
	for _, p := range []struct{ name, script, want string }{
		{"address", fmt.Sprintf(nc, kit.ServerAddr, port), "over the stack\n"},
		{"name", fmt.Sprintf(nc, "www.test", port), "over the stack\n"},
		{"accept", "toybox nc -l -p 77 -s 127.0.0.1 </dev/null & sleep 1; echo on loopback | toybox nc -q 1 127.0.0.1 77; wait", "on loopback\n"},
		{"ping", "ping -c 1 -w 9 www.test >/dev/null && ping6 -c 1 -w 9 " + kit.ServerAddr6 + " >/dev/null && echo both", "both\n"},
	} {
		for _, user := range []string{"0", "2000"} {
			t.Run(p.name+"/"+user, func(t *testing.T) {
				args := []string{"--name", kit.NewName(), "-q", "--engine", "supervise", "--if", s.TapIf(), "--dns", kit.ServerAddr, "--sysctl", "net.ipv4.ping_group_range=0 2147483647", "--",
					"env", "-i", "ANDROID_ROOT=/system", "ANDROID_DATA=/data", "/usr/sbin/chroot", "--userspec=" + user + ":" + user, root, "/system/bin/sh", "-c", "PATH=/system/bin; " + p.script}
				if r := kit.Run(t, kit.Limit, kit.Lklrun(args...)); r.Status != 0 || r.Stdout != p.want {
					t.Errorf("%v\nwant: %s", r, p.want)
				}
			})
		}
	}
	if c := n.asked.Load(); c != 0 {
		t.Errorf("netd was asked %d times, want 0", c)
	}
}
