// SPDX-License-Identifier: Apache-2.0

// Package image makes the root file system of a phone in a mount namespace: a read-only
// root with /system, a busybox shell, properties, and only /data/local/tmp writable.
// There is no HOME, /tmp, /dev/shm or /run, and no C library. The paths, modes and users
// are those of Android: system/core/rootdir and private/android_filesystem_config.h of
// the Android Open Source Project.
package image

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Users and groups of android_filesystem_config.h.
const (
	Shell    = 2000
	system   = 1000
	vpn      = 1016
	readproc = 3009
)

// Groups are the supplementary groups of a shell of adb: input, log, adb, sdcard_rw,
// net_bt_admin, net_bt, inet, net_bw_stats, readproc, uhid.
var Groups = []uint32{1004, 1007, 1011, 1015, 3001, 3002, 3003, 3006, readproc, 3011}

// Env is the environment of adbd and its children.
var Env = []string{"PATH=/system/bin", "ANDROID_ROOT=/system", "ANDROID_DATA=/data"}

// Image describes the content of the device.
type Image struct {
	At       string            // an empty directory of the namespace to build it in
	Busybox  string            // a static program for the device's architecture
	Packages string            // a directory of unpacked packages, mounted at Tree; "": none
	Su       string            // "magisk" (su -c), "aosp" (su 0), "": none
	Props    map[string]string // for getprop
	Programs map[string]string // further scripts in /system/bin
	Storage  int64             // bytes of /data; 0: 512 MB
}

// Tree is the path of Image.Packages. Programs there find their loader and libraries
// because /lib, /lib64 and /usr, which real phones do not have, are links to it.
const Tree = "/data/local/tmp/debian"

const properties = "/dev/__properties__"

var scripts = map[string]string{
	"getprop": `if [ $# = 0 ]; then
	for f in ` + properties + `/*; do echo "[${f##*/}]: [$(cat "$f")]"; done
elif [ -s ` + properties + `/"$1" ]; then
	echo "$(cat ` + properties + `/"$1")"
else
	echo "$2"
fi`,
	"setprop":    `printf %s "$2" >` + properties + `/"$1"`,
	"getenforce": `echo Enforcing`,
}

// Enter builds the image and makes it the root of the calling process.
func (im Image) Enter() error {
	if im.Storage == 0 {
		im.Storage = 512 << 20
	}
	for _, step := range []func() error{im.mounts, im.devices, im.system, im.data, im.change} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (im Image) path(p string) string { return filepath.Join(im.At, p) }

func (im Image) mount(kind, on string, flags uintptr, data string) error {
	if err := os.MkdirAll(im.path(on), 0o755); err != nil {
		return err
	}
	if err := unix.Mount(kind, im.path(on), kind, flags, data); err != nil {
		return fmt.Errorf("mounting %s on the device's %s: %w", kind, on, err)
	}
	return nil
}

func (im Image) mounts() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	const noprogs = unix.MS_NOSUID | unix.MS_NODEV
	for _, m := range []struct {
		kind, on string
		flags    uintptr
		data     string
	}{
		{"tmpfs", "/", 0, "mode=755"},
		{"proc", "/proc", noprogs, fmt.Sprintf("hidepid=invisible,gid=%d", readproc)},
		{"sysfs", "/sys", noprogs | unix.MS_RDONLY, ""},
		{"tmpfs", "/dev", unix.MS_NOSUID, "mode=755"},
		{"devpts", "/dev/pts", unix.MS_NOSUID, "newinstance,mode=600,ptmxmode=666"},
		{"tmpfs", "/data", noprogs, fmt.Sprintf("mode=771,size=%d", im.Storage)},
	} {
		if err := im.mount(m.kind, m.on, m.flags, m.data); err != nil {
			return err
		}
	}
	return nil
}

// devices makes Android's devices: its tun is not in /dev/net (ueventd.rc).
func (im Image) devices() error {
	for _, d := range []struct {
		name         string
		mode         os.FileMode
		major, minor uint32
		uid, gid     int
	}{
		{"null", 0o666, 1, 3, 0, 0},
		{"zero", 0o666, 1, 5, 0, 0},
		{"full", 0o666, 1, 7, 0, 0},
		{"random", 0o666, 1, 8, 0, 0},
		{"urandom", 0o666, 1, 9, 0, 0},
		{"tty", 0o666, 5, 0, 0, 0},
		{"fuse", 0o660, 10, 229, system, system},
		{"tun", 0o660, 10, 200, system, vpn},
	} {
		path := im.path("/dev/" + d.name)
		if err := unix.Mknod(path, unix.S_IFCHR|uint32(d.mode), int(unix.Mkdev(d.major, d.minor))); err != nil {
			return fmt.Errorf("making %s: %w", path, err)
		}
		if err := own(path, d.mode, d.uid, d.gid); err != nil {
			return err
		}
	}
	if err := os.Symlink("pts/ptmx", im.path("/dev/ptmx")); err != nil {
		return err
	}
	if err := os.Mkdir(im.path(properties), 0o755); err != nil {
		return err
	}
	for name, value := range im.Props {
		if err := os.WriteFile(im.path(filepath.Join(properties, name)), []byte(value), 0o644); err != nil {
			return err
		}
	}
	return os.Chmod(im.path(properties), 0o1777)
}

// system makes /system, with a link for each of busybox's programs.
func (im Image) system() error {
	bin := im.path("/system/bin")
	for _, dir := range []string{bin, im.path("/system/etc")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := os.Symlink("/system/etc", im.path("/etc")); err != nil {
		return err
	}
	program, err := os.ReadFile(im.Busybox)
	if err != nil {
		return err
	}
	if program, err = withoutSu(program); err != nil {
		return fmt.Errorf("%s: %w", im.Busybox, err)
	}
	if err := writeFile(filepath.Join(bin, "busybox"), program, 0o755); err != nil {
		return err
	}
	list, err := exec.Command(filepath.Join(bin, "busybox"), "--list").Output()
	if err != nil {
		return fmt.Errorf("%s --list: %w", im.Busybox, err)
	}
	all := map[string]string{}
	for _, from := range []map[string]string{scripts, im.Programs} {
		for name, text := range from {
			all[name] = text
		}
	}
	for _, name := range strings.Fields(string(list)) {
		if all[name] != "" {
			return fmt.Errorf("%s: the shell of %s has its own", name, im.Busybox)
		}
		if name == "busybox" {
			continue
		}
		if err := os.Symlink("busybox", filepath.Join(bin, name)); err != nil {
			return err
		}
	}
	for name, text := range all {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/system/bin/sh\n"+text+"\n"), 0o755); err != nil {
			return err
		}
	}
	if im.Su != "" {
		su := filepath.Join(bin, "su")
		program, err := os.ReadFile("/proc/self/exe")
		if err != nil {
			return err
		}
		if err := writeFile(su, program, 0o755); err != nil {
			return err
		}
		if err := own(su, 0o750|os.ModeSetuid, 0, Shell); err != nil {
			return err
		}
		if err := os.WriteFile(im.path(SuStyle), []byte(im.Su), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(im.path("/system/etc/hosts"), []byte("127.0.0.1 localhost\n::1 ip6-localhost\n"), 0o644)
}

// SuStyle is the file from which the device's su reads its own kind.
const SuStyle = "/system/etc/su"

// data makes the only directory that a shell may write to.
func (im Image) data() error {
	if err := own(im.path("/data"), 0o771, system, system); err != nil {
		return err
	}
	if err := os.MkdirAll(im.path("/data/local/tmp"), 0o755); err != nil {
		return err
	}
	if err := own(im.path("/data/local"), 0o751, 0, 0); err != nil {
		return err
	}
	if err := own(im.path("/data/local/tmp"), 0o771, Shell, Shell); err != nil {
		return err
	}
	if im.Packages == "" {
		return nil
	}
	if err := os.Mkdir(im.path(Tree), 0o755); err != nil {
		return err
	}
	if err := unix.Mount(im.Packages, im.path(Tree), "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting %s: %w", im.Packages, err)
	}
	if err := unix.Mount("", im.path(Tree), "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("mounting %s read-only: %w", im.Packages, err)
	}
	for _, dir := range []string{"/lib", "/lib64", "/usr"} {
		if _, err := os.Stat(im.Packages + dir); err != nil {
			continue // no architecture has all
		}
		if err := os.Symlink(Tree+dir, im.path(dir)); err != nil {
			return err
		}
	}
	return nil
}

// change makes the image the root with chroot(2). After chroot(2), the kernel refuses a
// new user namespace. This matches a phone, whose kernel is built without them.
func (im Image) change() error {
	if err := unix.Chroot(im.At); err != nil {
		return fmt.Errorf("entering %s: %w", im.At, err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("making the root read-only: %w", err)
	}
	return unix.Sethostname([]byte("localhost"))
}

func own(path string, mode os.FileMode, uid, gid int) error {
	if err := os.Chown(path, uid, gid); err != nil {
		return err
	}
	return os.Chmod(path, mode) // after chown(2), which clears set-user-ID
}

// writeFile is like os.WriteFile but ignores the umask.
func writeFile(path string, data []byte, mode os.FileMode) error {
	if err := os.WriteFile(path, data, mode); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

// withoutSu removes su from Debian's busybox: its shell prefers its own applets to PATH,
// and would never call the device's su. The applets' names are one sorted table, so the
// names after su must keep their positions.
func withoutSu(busybox []byte) ([]byte, error) {
	was, is := []byte("\x00su\x00sulogin\x00"), []byte("\x00sul\x00sulogi\x00")
	if bytes.Count(busybox, was) != 1 {
		return nil, fmt.Errorf("su and sulogin are not one after the other in its list")
	}
	return bytes.Replace(busybox, was, is, 1), nil
}
