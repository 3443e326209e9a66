// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/bench/table"
)

// Info describes the run: machine, kernel, commit and date.
func (l *Lab) Info(ctx context.Context) (table.Info, error) {
	i := table.Info{
		Date: time.Now().UTC().Format(time.RFC3339), Form: l.Form.Name, CPUs: runtime.NumCPU(), Seconds: map[string]float64{},
		System: strings.Trim(field("/etc/os-release", "PRETTY_NAME="), `"`),
		CPU:    strings.TrimLeft(field("/proc/cpuinfo", "model name"), "\t: "),
	}
	if l.cpu != nil {
		i.CPUTime = l.cpu.What
	}
	var mem unix.Sysinfo_t
	if err := unix.Sysinfo(&mem); err != nil {
		return i, err
	}
	i.Memory = fmt.Sprintf("%.1f GB", float64(mem.Totalram)*float64(mem.Unit)/1e9)
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return i, err
	}
	i.Kernel = "Linux " + unix.ByteSliceToString(u.Release[:])
	// An archive has no commit; a modified tree is marked.
	if out, err := l.Output(ctx, "git", "-C", l.Root, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"); err == nil {
		i.Commit = strings.TrimSpace(out)
	}
	return i, nil
}

// field finds the first line of a file that begins with the given word, and returns
// the rest of this line.
func field(path, begins string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), begins); ok {
			return rest
		}
	}
	return ""
}
