# SPDX-License-Identifier: Apache-2.0
#
# Prints everything that a run could leave behind on the machine.

ps -e -o comm= | grep lkl
ls -A /run/lklrun 2>/dev/null
ip -o link | sed 's/^[0-9]*: //; s/[@:].*//'
nft list ruleset
awk '{ print $2 }' /proc/mounts
:
