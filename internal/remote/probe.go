// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// BaseADB is the folder of all files on an Android device. It is the only place in
// which Android's shell user can write programs.
const BaseADB = "/data/local/tmp/lklrun"

// The timeouts of the inspection of a device, and of su. su may first ask the
// device's owner for permission.
const (
	probeLimit = 30 * time.Second
	suLimit    = 10 * time.Second
)

// Candidate folders on a machine behind ssh. The script uses the first one that is
// writable and allows execution. Any user could have created a folder in /tmp
// earlier. Therefore, the folder must belong to the login user, even if this is
// root, and must not be a link.
const basesSSH = `own=1; set -- "${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/lklrun-remote" "/tmp/lklrun-remote-$u" "/var/tmp/lklrun-remote-$u"`

// probeScript prints the Facts, each as one line NAME=VALUE. It uses only the
// features of the most basic shells. It creates the candidate folder. The folder
// must belong to the login user; on Android, root also accepts a folder of the
// shell user.
const probeScript = `PATH=$PATH:/bin:/usr/bin:/sbin:/usr/sbin; umask 022
echo "machine=$(uname -m)"
echo "kernel=$(uname -r)"
i=$(id 2>/dev/null); u=${i#uid=}; u=${u%%[!0-9]*}
echo "uid=$u"
echo "selinux=$(getenforce 2>/dev/null)"
echo "abi=$(getprop ro.product.cpu.abi 2>/dev/null)"
echo "sdk=$(getprop ro.build.version.sdk 2>/dev/null)"
for s in /system/bin/sh /bin/sh; do [ -x $s ] && break; done
@BASES@
for b in "$@"; do
  old=; [ -d "$b" ] && old=1
  [ -z "$own" ] || [ ! -L "$b" ] || continue
  mkdir -p "$b" 2>/dev/null || continue
  if [ -O "$b" ] || { [ "$u" = 0 ] && [ -z "$own" ]; }; then
    rm -f "$b/.try.$$"
    if (echo "#!$s"; echo "exit 0") 2>/dev/null >"$b/.try.$$" && chmod 700 "$b/.try.$$" && "$b/.try.$$" 2>/dev/null; then ok=1; else ok=; fi
    [ -s "$b/.try.$$" ] || [ -n "$ok" ] || full=1
    rm -f "$b/.try.$$"
    if [ -n "$ok" ] || [ -n "$full" ]; then
      echo "base=$b"
      [ -n "$old" ] || echo "made=1"
      echo "df=$(df -k "$b" 2>/dev/null | tail -n 1)"
      for h in "$b"/????????????; do [ -f "$h/lklrun" ] && echo "bundle=${h##*/}"; done
      break
    fi
  fi
  [ -n "$old" ] || rmdir "$b" 2>/dev/null
done
exit 0
`

// probe is the result of the script.
type probe struct {
	Facts
	bundles []string // the hashes of the bundles on the device
	made    bool     // the script created the folder
}

// look runs the script.
func look(ctx context.Context, d Device, android bool) (*probe, error) {
	bases := basesSSH
	if android {
		bases = "set -- " + BaseADB
	}
	limited, cancel := context.WithTimeoutCause(ctx, probeLimit, broken(d.Name(), "did not answer for %v", probeLimit))
	defer cancel()
	var out, said Head
	status, err := d.Run(limited, Command{Line: strings.Replace(probeScript, "@BASES@", bases, 1), Stdout: &out, Stderr: &said})
	if err != nil {
		return nil, err
	}
	p := parseProbe(out.String())
	if status != 0 || p.Machine == "" || p.UID < 0 {
		return nil, userError(d.Name(), "its shell failed to run a command (status %d)%s", status, after(": ", lastLine(said.String())))
	}
	return p, nil
}

// parseProbe parses the output of the script, which comes from an untrusted
// machine.
func parseProbe(out string) *probe {
	p := &probe{Facts: Facts{UID: -1, Free: -1}}
	for line := range strings.Lines(out) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if ok && value != "" {
			p.take(name, value)
		}
	}
	p.Arch = archOf(p.Machine)
	return p
}

func (p *probe) take(name, value string) {
	switch name {
	case "machine":
		p.Machine = value
	case "kernel":
		p.Kernel = value
	case "uid":
		if n, err := strconv.Atoi(value); err == nil {
			p.UID = n
		}
	case "selinux":
		p.SELinux = value
	case "abi":
		p.ABI = value
	case "sdk":
		p.SDK = value
	case "base":
		p.Base = value
	case "made":
		p.made = true
	case "df":
		p.Free = freeOf(value)
	case "bundle":
		p.bundles = append(p.bundles, value)
	}
}

// freeOf returns the free space from the last line of df, in which the column
// before the percentage is in KiB. It returns -1 if the format is different.
func freeOf(line string) int64 {
	fields := strings.Fields(line)
	for n, f := range fields {
		if n > 0 && strings.HasSuffix(f, "%") {
			if kib, err := strconv.ParseInt(fields[n-1], 10, 64); err == nil {
				return kib << 10
			}
		}
	}
	return -1
}

// archOf converts the machine of uname(2) to Go's name. It returns "" if there
// is no bundle for it.
func archOf(machine string) string {
	switch {
	case machine == "x86_64":
		return "amd64"
	case machine == "aarch64":
		return "arm64"
	case strings.HasPrefix(machine, "armv7"), strings.HasPrefix(machine, "armv8"):
		return "arm"
	}
	return ""
}

// lookSu finds the command with which the device's shell becomes root: su of Magisk
// and similar tools, or su of AOSP. It returns "" if neither works.
func lookSu(ctx context.Context, d Device) (string, error) {
	limited, cancel := context.WithTimeout(ctx, suLimit)
	defer cancel()
	for _, su := range []string{"su -c", "su 0"} {
		var out Head
		_, err := d.Run(limited, Command{Line: asRoot(su, "id"), Stdout: &out})
		switch {
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		case limited.Err() != nil:
			return "", nil // su asks the owner, who does not answer
		case err != nil:
			return "", err
		case regexp.MustCompile(`\buid=0\b`).Match(out.Bytes()):
			return su, nil
		}
	}
	return "", nil
}
