// SPDX-License-Identifier: Apache-2.0

package program

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// binfmtMisc is the directory in which the kernel lists the handlers of other formats,
// such as programs for other machines (Documentation/admin-guide/binfmt-misc.rst).
const binfmtMisc = "/proc/sys/fs/binfmt_misc"

// handler searches dir for an entry whose magic matches head, the beginning of a file. It
// returns the interpreter of that entry, or "" if there is none.
func handler(dir string, head []byte) string {
	if text, err := os.ReadFile(filepath.Join(dir, "status")); err != nil || strings.TrimSpace(string(text)) != "enabled" {
		return ""
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return ""
	}
	for _, e := range entries {
		if e.Name() == "status" || e.Name() == "register" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			continue
		}
		if i := matches(string(text), head); i != "" {
			return i
		}
	}
	return ""
}

// matches returns the interpreter of an entry if head has its magic.
func matches(entry string, head []byte) string {
	first, _, _ := strings.Cut(entry, "\n")
	if first != "enabled" {
		return ""
	}
	value := map[string]string{}
	for line := range strings.Lines(entry) {
		name, v, _ := strings.Cut(strings.TrimSpace(line), " ")
		value[name] = v
	}
	magic, err := hex.DecodeString(value["magic"])
	if err != nil || len(magic) == 0 { // the entry matches by the file's extension
		return ""
	}
	mask, _ := hex.DecodeString(value["mask"]) // without a mask, all bits count
	offset, _ := strconv.Atoi(value["offset"])
	if offset < 0 || offset+len(magic) > len(head) {
		return ""
	}
	for i, want := range magic {
		got := head[offset+i]
		if i < len(mask) {
			got &= mask[i]
			want &= mask[i]
		}
		if got != want {
			return ""
		}
	}
	return value["interpreter"]
}
