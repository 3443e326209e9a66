// SPDX-License-Identifier: Apache-2.0

package targets

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// aptLimit is the limit for apt and dpkg. They sync what they write, and take ten times
// as long under qemu-user.
const aptLimit = 8 * time.Minute

// A debian is a Debian 12 system of some architecture, with its own files and this
// machine's network and devices.
type debian struct {
	t     *testing.T
	root  string
	enter []string // the command that runs another command in it
}

// newDebian creates an empty system in memory.
func newDebian(t *testing.T) *debian {
	t.Helper()
	kit.Need(t, "unshare", "pivot_root")
	d := &debian{t: t, root: filepath.Join(kit.Dir(t), "debian")}
	if err := os.Mkdir(d.root, 0o755); err != nil {
		t.Fatal(err)
	}
	// Do not use chroot(8): after it, no process can create a user namespace.
	d.enter = []string{"unshare", "-m", "--propagation", "private", "sh", "-euc", `cd "$1"; pivot_root . .; umount -l .; shift; exec "$@"`, "sh", d.root}
	d.mount("tmpfs", "", 0)
	t.Cleanup(func() {
		if err := unix.Unmount(d.root, unix.MNT_DETACH); err != nil {
			t.Errorf("unmounting %s: %v", d.root, err)
		}
	})
	return d
}

// fill unpacks the files that `make deb-test` has fetched. The archive is the last
// argument of the command.
func (d *debian) fill(name string, command ...string) {
	d.t.Helper()
	from := filepath.Join(kit.Root(), "build", "deb-test", name)
	if _, err := os.Stat(from); err != nil {
		d.t.Fatalf("%v; it is made by make deb-test", err)
	}
	cmd := exec.Command(command[0], append(command[1:], from)...)
	cmd.Dir = d.root
	kit.OK(d.t, aptLimit, cmd)
	for _, on := range []string{"proc", "sys", "run", "dev", "tmp", "root"} {
		if err := os.MkdirAll(filepath.Join(d.root, on), 0o755); err != nil {
			d.t.Fatal(err)
		}
	}
	d.mount("proc", "proc", 0)
	d.mount("sysfs", "sys", 0)
	d.mount("tmpfs", "run", 0)
	d.mount("/dev", "dev", unix.MS_BIND|unix.MS_REC)
}

func (d *debian) mount(what, on string, flags uintptr) {
	d.t.Helper()
	if err := unix.Mount(what, filepath.Join(d.root, on), what, flags, ""); err != nil {
		d.t.Fatalf("mounting %s on %s: %v", what, on, err)
	}
}

// command is a shell command line in the system, as root or as another user.
func (d *debian) command(user, line string) *exec.Cmd {
	args := slices.Clone(d.enter)
	if user != "root" {
		args = append(args, "runuser", "-u", user, "--")
	}
	cmd := exec.Command(args[0], append(args[1:], "sh", "-euc", "cd; "+line)...)
	home := "/root"
	if user != "root" {
		home = "/home/" + user
	}
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "TERM=dumb", "DEBIAN_FRONTEND=noninteractive", "HOME=" + home}
	return cmd
}

// run runs a command line that must succeed, and returns its output.
func (d *debian) run(user, line string) string {
	d.t.Helper()
	return kit.OK(d.t, aptLimit, d.command(user, line))
}

// files lists all files except those that apt and dpkg keep for themselves, the caches
// that dpkg's triggers fill, devices and processes.
func (d *debian) files() []string {
	d.t.Helper()
	var all []string
	err := filepath.WalkDir(d.root, func(path string, e os.DirEntry, err error) error {
		rel := strings.TrimPrefix(path, d.root)
		switch rel {
		case "/proc", "/sys", "/dev", "/var/cache", "/var/log", "/var/lib/apt":
			return filepath.SkipDir
		}
		// The test covers dpkg's records of packages, but not its status file and locks.
		if filepath.Dir(rel) != "/var/lib/dpkg" {
			all = append(all, rel)
		}
		return err
	})
	if err != nil {
		d.t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// deb returns the path of a package that `make deb` has built.
func (d *debian) deb(name, arch string) string {
	d.t.Helper()
	found, err := filepath.Glob(filepath.Join(kit.Root(), "build", "deb", name+"_*_"+arch+".deb"))
	if err != nil || len(found) != 1 {
		d.t.Fatalf("in build/deb there are %q (%v) as %s for %s; make deb makes one", found, err, name, arch)
	}
	return found[0]
}

// put copies a package into the system and returns its path in it.
func (d *debian) put(deb string) string {
	d.t.Helper()
	kit.Host.Run(d.t, "install", "-m", "644", deb, filepath.Join(d.root, "tmp"))
	return "/tmp/" + filepath.Base(deb)
}

// TestDebian installs the package by apt on a clean Debian 12. Its programs must work
// for root and for other users, man must find its manual pages, and the shells must
// load its completions. After a purge, nothing of it may be left.
func TestDebian(t *testing.T) {
	s := kit.NewSite(t)
	s.Web(kit.Nginx{})
	before := kit.Take(t, s.Server)
	t.Run("arm64", testDebianArm64)
	t.Run("amd64", func(t *testing.T) {
		d := newDebian(t)
		d.fill("amd64.tar", "tar", "--numeric-owner", "-xf")
		debs := d.put(d.deb("lklrun", "amd64")) + " " + d.put(d.deb("lklrun-bundles", "all"))
		for _, version := range packagedStacks {
			debs += " " + d.put(d.deb("lklrun-stack-"+version, "amd64"))
		}
		d.run("root", "useradd -m user; apt-get -qy install --no-install-recommends curl man-db bash-completion zsh fish")
		clean := d.files()
		// The recommended packages of libpcap and dbus are not available without a
		// network.
		d.run("root", "apt-get -qy install --no-install-recommends "+debs)

		for _, user := range []string{"root", "user"} {
			for _, engine := range []string{"supervise", "preload"} {
				line := fmt.Sprintf("lklrun -q --engine %s -- curl -sS -m 20 %s/hello", engine, kit.ServerURL)
				if r := kit.Run(t, kit.Limit, d.command(user, line)); r.Status != 0 || r.Stdout != "hello\n" || r.Stderr != "" {
					t.Errorf("%s as %s: %v", line, user, r)
				}
			}
			// According to the stack's account, the connection used the stack.
			line := "lklrun -q --require stack -- curl -sS -m 20 " + kit.ServerURL + "/hello"
			if r := kit.Run(t, kit.Limit, d.command(user, line)); r.Status != 0 {
				t.Errorf("%s as %s: %v", line, user, r)
			}
			line = "lklrun -q --require mptcp -- true"
			if r := kit.Run(t, kit.Limit, d.command(user, line)); r.Status != 2 {
				t.Errorf("%s as %s, with the gateway, where TCP ends: %v", line, user, r)
			}
			line = "lklrun -q --detach --name t -- sleep 60; trap 'lklctl stop t; lklctl rm t' EXIT; lklctl -n t sysctl net.mptcp.enabled"
			if got := d.run(user, line); !strings.Contains(got, "net.mptcp.enabled = 1\n") {
				t.Errorf("lklctl as %s: %q", user, got)
			}
		}
		if got := d.run("user", "lklrun stacks -o json"); strings.Contains(got, `"missing"`) || !strings.Contains(got, `"/usr/lib/lklrun/stacks/mptcp"`) {
			t.Errorf("lklrun stacks:\n%s", got)
		}
		d.stacks()
		d.manuals()
		d.completions()

		d.run("root", "apt-get -qy purge --auto-remove lklrun")
		left := slices.DeleteFunc(d.files(), func(f string) bool {
			_, found := slices.BinarySearch(clean, f)
			return found
		})
		if len(left) > 0 {
			t.Errorf("after the purge there are still %s", strings.Join(left, " "))
		}
	})
	before.Same()
}

// testDebianArm64 unpacks the package for arm64 beside Debian's own arm64 packages. All
// its programs and libraries must be for arm64, and must run under qemu-user.
func testDebianArm64(t *testing.T) {
	kit.Need(t, "dpkg-deb", "cp")
	d := newDebian(t)
	d.enter = []string{"chroot", d.root} // the emulated umount(8) does not support the calls that pivot_root needs
	d.fill("arm64", "sh", "-c", `cp -a "$0/." .`)
	deb := d.deb("lklrun", "arm64")
	kit.Host.Run(t, "dpkg-deb", "-x", deb, d.root)

	if got := kit.Host.Run(t, "dpkg-deb", "-f", deb, "Architecture", "Depends"); !strings.Contains(got, "Architecture: arm64\n") ||
		!regexp.MustCompile(`Depends: libpcap0\.8, libc6 \(>= 2\.[0-9]+\)`).MatchString(got) {
		t.Errorf("the package says of itself:\n%s", got)
	}
	for _, name := range []string{"lklrun", "lklctl", "lklhost", "liblklpreload.so", "stacks/mptcp/liblkl.so", "stacks/bbr/liblkl.so", "stacks/vanilla/liblkl.so"} {
		f, err := elf.Open(filepath.Join(d.root, "usr/lib/lklrun", name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if f.Machine != elf.EM_AARCH64 {
			t.Errorf("%s is for %v", name, f.Machine)
		}
		f.Close()
	}
	if got := d.run("root", "lklrun stacks -o json"); strings.Contains(got, `"missing"`) || strings.Contains(got, `"unusable"`) || !strings.Contains(got, `"present"`) {
		t.Errorf("lklrun stacks:\n%s", got)
	}
	if got := d.run("root", "lklctl list -o json"); got != "[]\n" {
		t.Errorf("lklctl list: %q", got)
	}
	line := "lklrun -q --engine preload -- curl -sS -m 60 " + kit.ServerURL + "/hello"
	if r := kit.Run(t, 2*kit.Limit, d.command("root", line)); r.Status != 0 || r.Stdout != "hello\n" {
		t.Errorf("%s: %v", line, r)
	}
}

// packagedStacks are the versions of Linux with a package of their own.
var packagedStacks = []string{"6.1", "7.3"}

// stacks runs a program on the stacks that have packages of their own.
func (d *debian) stacks() {
	d.t.Helper()
	for _, version := range packagedStacks {
		name := "linux-" + version
		line := "lklrun -q --require stack --stack " + name + " -- curl -sS -m 20 " + kit.ServerURL + "/hello"
		if r := kit.Run(d.t, kit.Limit, d.command("user", line)); r.Status != 0 || r.Stdout != "hello\n" {
			d.t.Errorf("%s: %v", line, r)
		}
		if got := d.run("user", "lklrun stack check "+name); !regexp.MustCompile(`kernel +` + regexp.QuoteMeta(version) + `\.[0-9]`).MatchString(got) {
			d.t.Errorf("stack check %s:\n%s", name, got)
		}
		copyright := d.run("user", "cat /usr/share/doc/lklrun-stack-"+version+"/copyright")
		if !strings.Contains(copyright, "source package linux "+version+".") {
			d.t.Errorf("copyright of %s:\n%s", name, copyright)
		}
	}
}

// manuals looks up the manual pages of the programs and of their verbs.
func (d *debian) manuals() {
	d.t.Helper()
	for page, want := range map[string]string{"lklrun": "lklrun", "lklctl": "lklctl", "lklctl-mptcp": "subflow", "7 lklrun-interfaces": "macvtap:DEV", "lklrun-doctor": "doctor"} {
		if got := d.run("user", "man -P cat "+page); !strings.Contains(got, want) || !strings.Contains(got, "NAME") {
			d.t.Errorf("man %s: %.200s", page, got)
		}
	}
}

// completions asks each shell for the completions of a few letters. zsh needs a
// terminal for that, so the test asks it only which function completes the command.
func (d *debian) completions() {
	d.t.Helper()
	// Do as bash does at the first and the second tab after the name.
	const bash = `bash -c '. /usr/share/bash-completion/bash_completion
		_completion_loader "$0"; COMP_WORDS=("$@"); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}; COMP_CWORD=$(($# - 1)); COMP_TYPE=9
		f=$(complete -p "$0" | sed "s/.*-F \([^ ]*\).*/\1/"); $f "$0" "${COMP_WORDS[COMP_CWORD]}" "" >/dev/null 2>&1; printf "%%s\n" "${COMPREPLY[@]}"' %s %s`
	for _, c := range []struct{ line, want string }{
		{fmt.Sprintf(bash, "lklrun", "lklrun doc"), "doctor"},
		{fmt.Sprintf(bash, "lklctl", "lklctl sysc"), "sysctl"},
		{`fish -c 'complete -C "lklrun doc"; complete -C "lklctl sysc"'
		rm -r .config/fish .local/share/fish; rmdir .config .local/share .local`, "doctor\tcheck "},
		{`zsh -c 'autoload -Uz compinit; compinit -D; print $_comps[lklrun]; autoload +X _lklrun; print loaded'`, "_lklrun\nloaded"},
		{`zsh -c 'autoload -Uz compinit; compinit -D; print $_comps[lklctl]; autoload +X _lklctl; print loaded'`, "_lklctl\nloaded"},
	} {
		if r := kit.Run(d.t, kit.Limit, d.command("user", c.line)); r.Status != 0 || !strings.Contains(r.Stdout, c.want) {
			d.t.Errorf("%s: %v", c.line, r)
		}
	}
}
