#!/bin/sh
# Trains a head for SmolLM2-135M-Instruct on one GPU or several, without network. Run it again after a kill, a full disk
# or the time limit (exit status 75): it continues.
#
#   [GPUS=N] [WRITTEN=RUN] samples/train_smollm2_heads.sh KIND TARGET TEXT PROMPTS OUT [further flags]
#
#   KIND     eagle, medusa or mlp
#   GPUS     1, 2 or 4 of this machine's; each writes a part of the text, and trains on a part of every batch
#   WRITTEN  OUT of an earlier run of any kind: its text is read, the target does not write again
#   TARGET   SmolLM2-135M-Instruct as a folder or a .gguf file
#   TEXT     folder of .txt files; a manifest.json in it may name their licences
#   PROMPTS  JSON lines with "prompt" and "category": never trained on, the card reports acceptance on them
#   OUT      folder of the head: pilotfish export TARGET --head OUT --out BUNDLE
#   flags    such as --time-limit 540, --self-text-steps 10000, --initial-head OTHER, --keep-states 0 and
#            --write-batch 256 on a small GPU
#
# samples/smollm2-heads.md has the numbers of heads of these shapes.
set -eu

if [ $# -lt 5 ]; then
    sed -n '2,18s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
kind=$1 target=$2 text=$3 prompts=$4 out=$5
shift 5
case $kind in
eagle) own="--unroll 5 --decay 0.85 --ffn 3072 --draft-vocab 16384 --text-steps 0 --self-text-steps 3600
    --self-text-rate 2.5e-3" ;;
medusa) own="--num-heads 4 --blocks 5 --own-output yes --taps 12,18,24,27 --decay 0.9 --text-steps 1200 --self-text-steps 3600
    --self-text-rate 2e-3" ;;
mlp) own="--stages 3 --inner 1024 --taps 12,18,24,27 --decay 1 --text-steps 300 --self-text-steps 1200 --self-text-rate 3e-3" ;;
*)
    echo "KIND is $kind; choose eagle, medusa or mlp" >&2
    exit 2
    ;;
esac

export HF_HUB_OFFLINE=1
run="python -m"
if [ "${GPUS:-1}" != 1 ]; then
    run="python -m torch.distributed.run --standalone --nproc-per-node $GPUS -m"
fi
# shellcheck disable=SC2086  # the recipe is several flags
exec $run pilotfish.exporter.training "$kind" \
    --target "$target" --data "$text" --out "$out" --evaluation-prompts "$prompts" ${WRITTEN:+--written "$WRITTEN"} \
    $own --optimizer muon --batch-tokens 49152 --text-length 1024 --text-rate 2e-3 --text-warmup 60 \
    --self-text-length 1536 --self-text-warmup 60 --write-tokens 40000000 --write-batch 5120 --write-prompt 1152 \
    --write-answer 256 --write-temperatures 0 --excerpt-share 0.4 --keep-states 60 --evaluate-every 300 \
    --checkpoint-every 900 --patience 1000 --seed 0 "$@"
