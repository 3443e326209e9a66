// SPDX-License-Identifier: Apache-2.0

// Package vm gives tests a machine of another architecture: arm64, emulated by
// qemu-system-aarch64, with Debian's kernel and programs from its packages, and an ssh
// server. It can test features that the emulation of single programs lacks: seccomp
// notifications, taps, packet sockets, a kernel of its own.
package vm

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

// Addresses of the link between the tests and the machine.
const (
	HostAddr    = "10.90.0.1"
	MachineAddr = "10.90.0.2"
)

const (
	imageEnv  = "LKLRUN_TEST_VM" // directory of the image; with OlderKernel as a suffix, of that image
	bootLimit = 3 * time.Minute  // a boot takes 12 s on an idle machine
)

// OlderKernel is the series of Debian 11's kernel.
const OlderKernel = "5.10"

// Image makes the machine's kernel and file systems unless they exist. It needs the
// network of the test machine, so call it in kit.Main's before. The kernel is OlderKernel,
// or "" for that of the current Debian.
func Image(root, kernel string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(root, ".ci", "vm-image"))
	if kernel != "" {
		cmd.Args = append(cmd.Args, kernel)
	}
	cmd.WaitDelay = 5 * time.Second
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf(".ci/vm-image: %w: %s", err, errs.String())
	}
	return os.Setenv(imageEnv+kernel, strings.TrimSpace(string(out)))
}

// A Machine is a booted emulated machine.
type Machine struct {
	*kit.Proc
	Client  *kit.SSHClient // knows the machine, with root access
	console string
}

// Start boots a machine with a kernel, see Image. It ends with the test. Only one can run
// at a time.
func Start(t testing.TB, kernel string) *Machine {
	t.Helper()
	kit.Need(t, "qemu-system-aarch64", "ssh", "ssh-keygen", "ip", "cpio")
	image := os.Getenv(imageEnv + kernel)
	if image == "" {
		t.Fatalf("no image: TestMain does not call vm.Image(root, %q)", kernel)
	}
	dir := kit.Dir(t)
	m := &Machine{Client: kit.NewSSHClient(t), console: filepath.Join(dir, "console")}
	m.Client.Know(t, MachineAddr, 22, boot(t, m.Client, image, dir))
	kit.Host.Tap(t, "vm0")
	kit.Host.Addr(t, "vm0", HostAddr+"/24")

	cmd := exec.Command("qemu-system-aarch64", "-M", "virt", "-cpu", "cortex-a72", "-accel", "tcg,thread=multi",
		"-smp", "2", "-m", "2048", "-display", "none", "-monitor", "none", "-serial", "file:"+m.console, "-no-reboot",
		"-kernel", filepath.Join(image, "vmlinuz"), "-initrd", filepath.Join(dir, "initrd"),
		"-append", "console=ttyAMA0 loglevel=5 panic=-1 vm.address="+MachineAddr+"/24",
		"-drive", "if=virtio,format=raw,cache=unsafe,snapshot=on,file="+filepath.Join(image, "root.ext4"),
		"-netdev", "tap,id=wire,ifname=vm0,script=no,downscript=no", "-device", "virtio-net-pci,netdev=wire,romfile=")
	cmd.Env = append(os.Environ(), "TMPDIR="+dir) // for data written to the disk
	m.Proc = kit.Start(t, cmd)
	began := time.Now()
	up := func() bool {
		if !m.Running() {
			t.Fatalf("qemu: %v\n%s", m.Wait(time.Second), m.Console())
		}
		conn, err := net.DialTimeout("tcp", MachineAddr+":22", time.Second)
		if err == nil {
			_ = conn.Close() // nothing was sent
		}
		return err == nil
	}
	if !kit.Within(bootLimit, up) {
		t.Fatalf("no ssh server within %v; the console:\n%s", bootLimit, m.Console())
	}
	t.Logf("booted in %.1f s", time.Since(began).Seconds())
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the machine's console:\n%s", m.Console())
		}
	})
	return m
}

// boot makes dir/initrd from the image's initrd and the keys of this boot. It returns the
// path of the server's public key.
func boot(t testing.TB, client *kit.SSHClient, image, dir string) string {
	t.Helper()
	cfg := filepath.Join(dir, "extra", "cfg")
	kit.WriteFile(t, filepath.Join(cfg, "authorized_keys"), client.Public(t))
	kit.SSHKey(t, filepath.Join(cfg, "host"))
	join := exec.Command("sh", "-euc", `cp "$1" initrd; cd extra; find cfg | cpio --quiet -o -H newc >>../initrd`, "sh", filepath.Join(image, "initrd"))
	join.Dir = dir
	kit.OK(t, time.Minute, join)
	return filepath.Join(cfg, "host.pub")
}

// Console returns the output of the machine's kernel and its first process.
func (m *Machine) Console() string {
	text, err := os.ReadFile(m.console)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Target is the machine in the form of --device.
func (m *Machine) Target() string { return "ssh:root@" + MachineAddr }

// Command is a shell command on the machine, run as root. It is not started.
func (m *Machine) Command(line string) *exec.Cmd {
	return m.Client.Command(kit.Host, "root@"+MachineAddr, line)
}

// Sh runs a shell command on the machine as root.
func (m *Machine) Sh(t testing.TB, limit time.Duration, line string) kit.Result {
	t.Helper()
	return kit.Run(t, limit, m.Command(line))
}

// Do is like Sh, for a command that must exit with 0; it returns its standard output.
func (m *Machine) Do(t testing.TB, limit time.Duration, line string) string {
	t.Helper()
	r := m.Sh(t, limit, line)
	if r.Status != 0 {
		t.Fatalf("on the machine: %s: %v", line, r)
	}
	return r.Stdout
}

// Put copies files and directories, whose names are relative to dir, to a directory of
// the machine. It creates that directory, and replaces links by their targets.
func (m *Machine) Put(t testing.TB, to, dir string, names ...string) {
	t.Helper()
	tar := exec.Command("tar", append([]string{"-C", dir, "-chf", "-"}, names...)...)
	pipe, err := tar.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	unpack := m.Command("mkdir -p " + to + " && tar -C " + to + " -xf -")
	unpack.Stdin = pipe
	p := kit.Start(t, tar)
	if r := kit.Run(t, 2*time.Minute, unpack); r.Status != 0 {
		t.Fatalf("copying %s: %v", strings.Join(names, " "), r)
	}
	if r := p.Wait(time.Minute); r.Status != 0 {
		t.Fatalf("copying %s: %v", strings.Join(names, " "), r)
	}
}
