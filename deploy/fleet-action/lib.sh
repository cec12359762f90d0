# shellcheck shell=bash
# What start.sh and stop.sh have in common.

# fail MESSAGE ends the step with an error, which is one line for the runner whatever the message has in it.
fail() {
	local text=${1//'%'/%25}
	text=${text//$'\r'/%0D}
	printf '::error title=wherry fleet::%s\n' "${text//$'\n'/%0A}"
	exit 1
}

# check_name ends the step unless FLEET_NAME can be a part of a path.
check_name() {
	[[ ${#FLEET_NAME} -le 40 && $FLEET_NAME =~ ^[a-z0-9]([a-z0-9-]*[a-z0-9])?$ ]] || fail "input name: use at most 40 small letters, digits and hyphens"
}

# find_wherry sets wherry to the path of the program.
find_wherry() {
	wherry=$FLEET_WHERRY
	if [[ -z $wherry ]]; then
		wherry=$(command -v wherry) || fail "no program wherry in PATH: name it with the input wherry"
	fi
	[[ -f $wherry && -x $wherry ]] || fail "input wherry: no program is at this path"
	wherry=$(realpath -- "$wherry")
}

# quiet FILE prints the end of a file. The runner takes no line of it for a command.
quiet() {
	local token=wherry-$RANDOM$RANDOM$RANDOM$RANDOM
	printf '::stop-commands::%s\n' "$token"
	tail -n 60 -- "$1" || true
	printf '\n::%s::\n' "$token"
}

# cell makes its input safe in a table of Markdown: nothing of it is markup.
cell() {
	sed -e 's/&/\&amp;/g' -e 's/</\&lt;/g' -e 's/>/\&gt;/g' -e 's/|/\&#124;/g' -e 's/`/\&#96;/g' -e 's/\*/\&#42;/g' -e 's/_/\&#95;/g' \
		-e 's/~/\&#126;/g' -e 's/\[/\&#91;/g' -e 's/\]/\&#93;/g' -e 's/\\/\&#92;/g'
}

# state FILE writes the output of `wherry fleet get` to the summary as a table: a name and a text in each line, with two spaces or more between.
state() {
	{
		printf '\n| | |\n|---|---|\n'
		cell <"$1" | sed -nE 's/^ *([^ ]+( [^ ]+)?)  +(.+)$/| \1 | \3 |/p'
	} >>"$GITHUB_STEP_SUMMARY"
}

# outcomes FILE prints the outcomes of expectations from a file of `wherry fleet expect -o json` as the rows of a table.
outcomes() {
	sed '/^  "state": /,$d' -- "$1" | awk '
		function value() { sub(/^ *"[a-z]+": "?/, ""); sub(/"?,?$/, ""); gsub(/\\"/, "\""); gsub(/\\\\/, "\\"); return $0 }
		/^ +"expect": / { expect = value() }
		/^ +"held": / && expect != "" { held = (value() == "true") ? "yes" : "no" }
		/^ +"now": / { print expect "\t" held "\t" value(); expect = "" }' | cell | awk -F '\t' '{ print "| " $1 " | " $2 " | " $3 " |" }'
}
